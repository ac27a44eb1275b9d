#pragma once
// The bytes of a text input from its beginning to its end: a file as it is, a gzip file unpacked on the way (told by
// its first bytes, not by its name), or standard input, which may be either.
//
// Whatever the packed bytes claim, no more is unpacked than is asked for.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace quench {

// The name of standard input among data files.
inline constexpr const char* kStandardInput = "-";

class TextInput {
 public:
  // Throws what BinaryFile throws.
  explicit TextInput(const std::filesystem::path& path);
  ~TextInput();
  TextInput(const TextInput&) = delete;
  TextInput& operator=(const TextInput&) = delete;

  // How errors call it: the path, or "standard input".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // Fills `out`, or less of it at the end; 0 at the end only. Several gzip members follow each other as one text.
  // Throws corrupt, naming the byte of the packed file, where gzip data is damaged, cut off or followed by something
  // else, and what BinaryFile::read throws.
  std::size_t read(std::span<std::byte> out);
  // Bytes of the file, as it is stored, that have been read.
  [[nodiscard]] std::uint64_t position() const noexcept;

 private:
  class Source;
  class Unpacker;

  std::string name_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Unpacker> unpacker_;  // null: not packed
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

// The extension that tells what the text is: ".jsonl" of a.jsonl and of a.jsonl.gz.
[[nodiscard]] std::string text_extension(const std::filesystem::path& path);

}  // namespace quench
