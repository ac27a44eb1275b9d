#pragma once
// Sequential bytes of a text input: plain, gzip or zstd (detected by magic bytes) file, or standard input.
// Decompression is on demand and bounded by the requested bytes.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace quench {

inline constexpr const char* kStandardInput = "-";

class TextInput {
 public:
  // Throws the errors of BinaryFile, and unsupported for other compression formats.
  explicit TextInput(const std::filesystem::path& path);
  ~TextInput();
  TextInput(const TextInput&) = delete;
  TextInput& operator=(const TextInput&) = delete;

  // In errors: path, or "standard input".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // At least the first 64 KiB of the text, if it is that long; read() returns them again. Call before read(); valid
  // until then. Throws the errors of read().
  [[nodiscard]] std::string_view peek();
  // Fills `out`, partially only at the end; 0 only at the end. Gzip members and zstd frames are concatenated. Throws
  // corrupt, with the byte position in the compressed file, for damaged, truncated or trailing data, and the errors of
  // BinaryFile::read.
  std::size_t read(std::span<std::byte> out);
  // Stored bytes read; 0 until the text decompressed by peek() is consumed.
  [[nodiscard]] std::uint64_t position() const noexcept;

 private:
  class Source;
  class Unpacker;
  class GzipUnpacker;
  class ZstdUnpacker;

  std::string name_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Unpacker> unpacker_;  // null: not compressed
  std::string peeked_;                  // decompressed text of peek()
  std::size_t peeked_at_ = 0;           // consumed bytes of peeked_
};

// Stored bytes of a block of text.
struct StoredSpan {
  std::uint64_t begin = 0, end = 0;
  // Stored byte of `offset` in `size` bytes of text.
  [[nodiscard]] std::uint64_t at(std::uint64_t offset, std::uint64_t size) const noexcept {
    if (size == 0 || end - begin == size) return begin + offset;
    return begin + static_cast<std::uint64_t>(static_cast<double>(end - begin) * static_cast<double>(offset) /
                                              static_cast<double>(size));
  }
};

// Stored bytes of the file; 0 for standard input.
[[nodiscard]] std::uint64_t stored_size(const std::filesystem::path& path);

// Unsupported compression program, by first bytes ("bzip2"); empty: none.
[[nodiscard]] std::string_view foreign_packer(std::string_view start);

// Extension without compression suffix, in lower case: ".jsonl" of a.jsonl, A.JSONL, a.jsonl.gz and a.jsonl.zst.
[[nodiscard]] std::string text_extension(const std::filesystem::path& path);

}  // namespace quench
