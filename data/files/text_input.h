#pragma once
// Bytes of a file (plain, gzip, zstd by magic bytes) or standard input. Decompression is bounded by the requested
// bytes.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace quench {

inline constexpr const char* kStandardInput = "-";

class TextInput {
 public:
  // `on_block`: before each read(). Throws the errors of BinaryFile, and unsupported for other compression.
  explicit TextInput(const std::filesystem::path& path, std::function<void()> on_block = {});
  ~TextInput();
  TextInput(const TextInput&) = delete;
  TextInput& operator=(const TextInput&) = delete;

  // Path, or "standard input".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // First 64 KiB or more of the text, if so long; read() returns them again. Before read(); valid until then. Throws
  // the errors of read().
  [[nodiscard]] std::string_view peek();
  // Partial or 0 only at the end. Gzip members and zstd frames are concatenated. Throws corrupt, with the compressed
  // position, for damaged, truncated or trailing data, and the errors of BinaryFile::read.
  std::size_t read(std::span<std::byte> out);
  // Stored bytes read; 0 until peek()'s text is consumed.
  [[nodiscard]] std::uint64_t position() const noexcept;

 private:
  class Source;
  class Unpacker;
  class GzipUnpacker;
  class ZstdUnpacker;

  std::string name_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Unpacker> unpacker_;  // or null
  std::string peeked_;
  std::size_t peeked_at_ = 0;  // consumed
  std::function<void()> on_block_;
};

// Stored range of a block of text.
struct StoredSpan {
  std::uint64_t begin = 0, end = 0;
  // Stored position of `offset` in `size` bytes of text.
  [[nodiscard]] std::uint64_t at(std::uint64_t offset, std::uint64_t size) const noexcept {
    if (size == 0 || end - begin == size) return begin + offset;
    return begin + static_cast<std::uint64_t>(static_cast<double>(end - begin) * static_cast<double>(offset) /
                                              static_cast<double>(size));
  }
};

// '\n', or '\r' where the start of a text has no other line ends (old Macintosh files).
[[nodiscard]] char line_end_of(std::string_view start);

// 0 for standard input.
[[nodiscard]] std::uint64_t stored_size(const std::filesystem::path& path);

// By first bytes: "bzip2"; or empty.
[[nodiscard]] std::string_view foreign_packer(std::string_view start);

// ".jsonl" of a.jsonl, A.JSONL, a.jsonl.gz and a.jsonl.zst.
[[nodiscard]] std::string text_extension(const std::filesystem::path& path);

}  // namespace quench
