#pragma once
// The bytes of a text input from its beginning to its end: a file as it is, a gzip or zstd file unpacked as it is read
// (told by its first bytes, not by its name), or standard input, which may be either.
//
// Whatever the packed bytes claim, no more is unpacked than is asked for.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace quench {

// The name of standard input among data files.
inline constexpr const char* kStandardInput = "-";

class TextInput {
 public:
  // Throws what BinaryFile throws, and unsupported for a file that another program packed.
  explicit TextInput(const std::filesystem::path& path);
  ~TextInput();
  TextInput(const TextInput&) = delete;
  TextInput& operator=(const TextInput&) = delete;

  // How errors call it: the path, or "standard input".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // The beginning of the text, 64 KiB of it or more unless it is shorter; read() gives them again. To be called before
  // read(), and valid until then. Throws what read() throws.
  [[nodiscard]] std::string_view peek();
  // Fills `out`, or less of it at the end; 0 at the end only. Several gzip members or zstd frames follow each other as
  // one text. Throws corrupt, naming the byte of the packed file, where packed data is damaged, cut off or followed by
  // something else, and what BinaryFile::read throws.
  std::size_t read(std::span<std::byte> out);
  // Bytes of the file, as it is stored, that have been read; 0 until the text that peek() unpacked has been.
  [[nodiscard]] std::uint64_t position() const noexcept;

 private:
  class Source;
  class Unpacker;
  class GzipUnpacker;
  class ZstdUnpacker;

  std::string name_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Unpacker> unpacker_;  // null: not packed
  std::string peeked_;                  // text that is unpacked already
  std::size_t peeked_at_ = 0;           // of it, what has been read
};

// Which bytes of the stored file a block of text came from.
struct StoredSpan {
  std::uint64_t begin = 0, end = 0;
  // The byte that belongs to `offset` of `size` bytes of text.
  [[nodiscard]] std::uint64_t at(std::uint64_t offset, std::uint64_t size) const noexcept {
    if (size == 0 || end - begin == size) return begin + offset;
    return begin + static_cast<std::uint64_t>(static_cast<double>(end - begin) * static_cast<double>(offset) /
                                              static_cast<double>(size));
  }
};

// Bytes of the file as it is stored; 0 for standard input.
[[nodiscard]] std::uint64_t stored_size(const std::filesystem::path& path);

// The program that packed a file that begins so, which TextInput does not read ("bzip2"); empty for any other.
[[nodiscard]] std::string_view foreign_packer(std::string_view start);

// The extension that tells what the text is, in lower case: ".jsonl" of a.jsonl, A.JSONL, a.jsonl.gz and a.jsonl.zst.
[[nodiscard]] std::string text_extension(const std::filesystem::path& path);

}  // namespace quench
