#pragma once
// Strict reader and writer of the safetensors format (u64 little-endian header length, JSON header, byte buffer).
//
// The reader enforces the format's rules before it looks at any data: header size cap of 100,000,000 bytes, valid
// UTF-8 JSON object, no duplicate names, known dtypes, checked products, offsets that tile the buffer exactly with no
// hole, overlap or trailing byte. Data is read with pread, never mapped, so a file truncated by somebody else is an
// error and not a SIGBUS. Files of other kinds (Git LFS pointers, pickles, GGUF, HTML) are named in the error.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"

namespace quench {

// One distinct reason per way in which a file can be wrong.
enum class SafetensorsFault {
  header_too_small,
  header_too_large,
  invalid_header_length,
  invalid_utf8,
  invalid_start,
  invalid_json,
  duplicate_name,
  unknown_dtype,
  invalid_offset,
  size_overflow,
  misaligned,
  size_mismatch,
  incomplete_buffer,
  too_many_tensors,
  invalid_name,
  invalid_metadata,
  wrong_file_type,
};
[[nodiscard]] std::string_view to_string(SafetensorsFault fault) noexcept;

class SafetensorsError : public Error {
 public:
  SafetensorsError(SafetensorsFault fault, const std::string& message)
      : Error(ErrorCode::corrupt, message), fault_(fault) {}
  [[nodiscard]] SafetensorsFault fault() const noexcept { return fault_; }

 private:
  SafetensorsFault fault_;
};

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      // as in the file: "F32", "BF16", "F8_E4M3", ...
  std::optional<DType> dtype;  // empty for valid dtypes that Quench does not compute with (F6_*, C64, fnuz)
  Shape shape;                 // logical; for F4 the number of 4-bit elements
  std::uint64_t begin = 0;     // byte range within the data buffer
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // sorted by offset
  std::map<std::string, std::string> metadata;  // __metadata__
  std::uint64_t data_start = 0;                 // file offset of the data buffer
};

// Validates `head` (the first bytes of a file: at least 8 + header length of them) against a file of file_size bytes.
// Pure function of its arguments, the fuzz target. Throws SafetensorsError; `source` names the file in messages.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::uint8_t> head, std::uint64_t file_size,
                                                         std::string_view source);

class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&& other) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) = delete;

  [[nodiscard]] const SafetensorsHeader& header() const noexcept { return header_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const noexcept;
  // Throws not_found naming the file and the tensor.
  [[nodiscard]] const SafetensorsEntry& at(std::string_view name) const;
  // Reads bytes [offset, offset + out.size()) of the tensor's data. Throws io if the file shrank.
  void read(const SafetensorsEntry& entry, std::span<std::byte> out, std::uint64_t offset = 0) const;

 private:
  std::filesystem::path path_;
  int file_ = -1;
  SafetensorsHeader header_;
};

struct SafetensorsItem {
  std::string name;
  DType dtype;
  Shape shape;
  std::span<const std::byte> data;  // contiguous, row-major, exactly the tensor's bytes
};

// The file-format name of a dtype ("F32", "F8_E4M3", "BOOL", ...); i4 has none and throws unsupported.
[[nodiscard]] std::string_view safetensors_name(DType dtype);

// Writes one file: items sorted by descending dtype width then name, header padded with spaces to a multiple of 8.
// Goes to a temporary file in the same folder (fallocate, write, fsync), then renames over `path` and fsyncs the
// folder; an existing file is never truncated in place. Throws no_space or io; the old file is then intact.
void write_safetensors(const std::filesystem::path& path, std::vector<SafetensorsItem> items,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace quench
