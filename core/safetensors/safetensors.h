#pragma once
// Strict safetensors reader and writer (u64 little-endian header length, JSON header, byte buffer; README of
// safetensors, "Format").
//
// Validated before any data access: header of at most 100,000,000 bytes, UTF-8 JSON object, unique names, known dtypes,
// overflow-checked sizes, offsets that tile the buffer. pread, not mmap: concurrent truncation is an error, not a
// SIGBUS. Other kinds (Git LFS pointers, pickles, GGUF, HTML) are named in errors.
//
// Stricter than the format: at most 1,000,000 tensors, rank <= 8, dimensions < 2^48, names of 1 to 512 bytes without
// control characters, no white space before the header, no duplicate keys.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/number/dtype.h"
#include "core/tensor/shape.h"

namespace quench {

// Reason for the refusal of a file.
enum class SafetensorsFault {
  header_too_small,       // fewer than 8 bytes
  header_too_large,       // beyond the limit
  invalid_header_length,  // beyond the file's end
  invalid_utf8,
  invalid_start,  // not '{'
  invalid_json,   // or structure
  duplicate_name,
  unknown_dtype,
  invalid_shape,      // rank too large
  invalid_offset,     // hole, overlap, or end before begin
  size_overflow,      // beyond 64 bits, or a dimension above 2^48 - 1
  misaligned,         // 4-bit or 6-bit tensor, not whole bytes
  size_mismatch,      // against shape and dtype
  incomplete_buffer,  // file shorter or longer than its tensors
  too_many_tensors,
  invalid_name,
  invalid_metadata,
  wrong_file_type,  // another kind
};
[[nodiscard]] std::string_view to_string(SafetensorsFault fault) noexcept;

// Malformed file; code corrupt.
class SafetensorsError : public Error {
 public:
  SafetensorsError(SafetensorsFault fault, const std::string& message)
      : Error(ErrorCode::corrupt, message), fault_(fault) {}
  [[nodiscard]] SafetensorsFault fault() const noexcept { return fault_; }

 private:
  SafetensorsFault fault_;
};

// Stored tensor.
struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      // "F32", "BF16", "F8_E4M3", ...
  std::optional<DType> dtype;  // empty if unsupported (F6_*, C64, fnuz)
  Shape shape;                 // logical; F4 counts 4-bit elements
  std::uint64_t begin = 0;     // byte range in the buffer
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t nbytes() const noexcept { return end - begin; }
};

// Checked header of a file.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // sorted by offset
  std::map<std::string, std::string> metadata;  // __metadata__
  std::uint64_t data_start = 0;                 // file offset of the buffer
  std::vector<std::string> warnings;            // harmless deviations from the schema
};

// Identify a file kind, contain the header length.
inline constexpr std::size_t kSafetensorsProbeBytes = 512;

// `probe`: first min(file_size, kSafetensorsProbeBytes) bytes. At most 100,000,000, and 8 + length <= file_size. Throws
// SafetensorsError.
[[nodiscard]] std::uint64_t safetensors_header_length(std::span<const std::uint8_t> probe, std::uint64_t file_size,
                                                      std::string_view source);

// `head`: first 8 + header length bytes or more. Pure function, fuzz target; `source`: for messages. Throws
// SafetensorsError.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::uint8_t> head, std::uint64_t file_size,
                                                         std::string_view source);

// Thread-safe reads.
class SafetensorsReader {
 public:
  // Regular file or symbolic link to one. Throws SafetensorsError, not_found or io.
  explicit SafetensorsReader(const std::filesystem::path& path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&& other) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) = delete;

  [[nodiscard]] const SafetensorsHeader& header() const noexcept { return header_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const noexcept;
  // Throws not_found naming file and tensor.
  [[nodiscard]] const SafetensorsEntry& at(std::string_view name) const;
  // Bytes [offset, offset + out.size()) of a tensor, large ones by several threads. Throws io if the file shrank.
  void read(const SafetensorsEntry& entry, std::span<std::byte> out, std::uint64_t offset = 0) const;
  // Begins to read a tensor into the page cache; a hint.
  void prefetch(const SafetensorsEntry& entry) const noexcept;

 private:
  void read_at(std::uint64_t position, std::span<std::byte> out) const;
  void read_serially(std::uint64_t position, std::span<std::byte> out) const;

  std::filesystem::path path_;
  int file_ = -1;
  SafetensorsHeader header_;
  std::vector<std::uint32_t> by_name_;  // header_.entries by name
};

// Tensor to write.
struct SafetensorsItem {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> data = {};  // contiguous, row-major
  // Instead of `data`, called once on write: models larger than memory.
  std::function<std::vector<std::byte>()> produce = {};
};

// "F32", "F8_E4M3", "BOOL", ...; throws unsupported for i4.
[[nodiscard]] std::string_view safetensors_name(DType dtype);

// Positions in a file to write.
struct SafetensorsLayout {
  std::string header;                // length prefix, padded JSON
  std::vector<std::size_t> order;    // items in data order
  std::vector<std::uint64_t> sizes;  // in item order
  std::uint64_t file_size = 0;
};

// Does not read the data. Throws invalid_argument for items that readers reject.
[[nodiscard]] SafetensorsLayout layout_safetensors(std::span<const SafetensorsItem> items,
                                                   const std::map<std::string, std::string>& metadata);

// Items by descending dtype width, then name; header space-padded to a multiple of 8: bit-identical to the reference
// implementation. Atomic: temporary file (fallocate, write, fsync), rename, fsync of the folder. Throws
// invalid_argument for items that readers reject, no_space or io; the old file stays intact.
void write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsItem>& items,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace quench
