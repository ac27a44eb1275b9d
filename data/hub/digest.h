#pragma once
// Digests by which the hub names contents: SHA-256 of files in large file storage (LFS), and of others the SHA-1 that
// git gives a blob.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace quench::hub {

enum class DigestKind : std::uint8_t {
  sha256,    // all bytes
  git_blob,  // SHA-1 of "blob SIZE\0" and the bytes
};

// Digest of bytes that arrive in pieces.
class Digest {
 public:
  // `size`: bytes in all; read by git_blob alone.
  Digest(DigestKind kind, std::uint64_t size);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  // As after construction.
  void restart();
  void add(std::span<const std::byte> bytes);
  // Hexadecimal, lower case; restart() before further bytes.
  [[nodiscard]] std::string finish();

 private:
  struct Context;
  DigestKind kind_;
  std::uint64_t size_;
  std::unique_ptr<Context> context_;
};

// Digest of a whole file. Throws not_found or io.
[[nodiscard]] std::string file_digest(const std::filesystem::path& path, DigestKind kind);

}  // namespace quench::hub
