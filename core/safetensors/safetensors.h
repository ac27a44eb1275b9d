#pragma once
// Strict reader and writer of the safetensors format (u64 little-endian header length, JSON header, byte buffer).
//
// The reader enforces the format's rules before it looks at any data: header size cap of 100,000,000 bytes, valid
// UTF-8 JSON object, no duplicate names, known dtypes, checked products, offsets that tile the buffer exactly with no
// hole, overlap or trailing byte. Data is read with pread, never mapped, so a file truncated by somebody else is an
// error and not a SIGBUS. Files of other kinds (Git LFS pointers, pickles, GGUF, HTML) are named in the error.
//
// Beyond the format: at most 1,000,000 tensors of rank 8 or less, dimensions up to 2^48, names of 1 to 512 bytes
// without control characters, no white space before the header, no duplicate keys anywhere. Source: README of the
// safetensors project, section "Format".

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

// One distinct reason per way in which a file can be wrong.
enum class SafetensorsFault {
  header_too_small,       // fewer than 8 bytes
  header_too_large,       // header length beyond the cap
  invalid_header_length,  // header length beyond the end of the file
  invalid_utf8,
  invalid_start,   // the header's first byte is not '{'
  invalid_json,    // not JSON, or not of the structure that the format prescribes
  duplicate_name,  // of a tensor
  unknown_dtype,
  invalid_shape,      // more dimensions than we support
  invalid_offset,     // a hole, an overlap, or an end before its begin
  size_overflow,      // element or bit count beyond 64 bits, or a dimension beyond 2^48
  misaligned,         // 4-bit and 6-bit tensors that do not fill whole bytes
  size_mismatch,      // offsets that do not span the shape's bytes
  incomplete_buffer,  // a file shorter or longer than its tensors
  too_many_tensors,
  invalid_name,
  invalid_metadata,
  wrong_file_type,  // recognised as something else
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

  [[nodiscard]] std::uint64_t nbytes() const noexcept { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // sorted by offset
  std::map<std::string, std::string> metadata;  // __metadata__
  std::uint64_t data_start = 0;                 // file offset of the data buffer
  std::vector<std::string> warnings;            // what is outside the format's schema but harmless
};

// Bytes of a file's front that name its type, and more than its header length takes.
inline constexpr std::size_t kSafetensorsProbeBytes = 512;

// The header's length in bytes, from the first min(file_size, kSafetensorsProbeBytes) bytes of a file of file_size
// bytes. The result is at most 100,000,000 and 8 + length <= file_size. Throws SafetensorsError.
[[nodiscard]] std::uint64_t safetensors_header_length(std::span<const std::uint8_t> probe, std::uint64_t file_size,
                                                      std::string_view source);

// Validates `head` (the first bytes of a file: at least 8 + header length of them) against a file of file_size bytes.
// Pure function of its arguments, the fuzz target. Throws SafetensorsError; `source` names the file in messages.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::uint8_t> head, std::uint64_t file_size,
                                                         std::string_view source);

// Reads may run concurrently.
class SafetensorsReader {
 public:
  // Opens a regular file (a symbolic link to one will do) and validates its header. Throws SafetensorsError, or
  // not_found or io from the operating system.
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
  void read_at(std::uint64_t position, std::span<std::byte> out) const;

  std::filesystem::path path_;
  int file_ = -1;
  SafetensorsHeader header_;
  std::vector<std::uint32_t> by_name_;  // indices of header_.entries in order of their names
};

struct SafetensorsItem {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> data = {};  // contiguous, row-major, exactly the tensor's bytes
  // If set, called once for those bytes when their turn to be written comes, instead of `data`: a model larger than
  // memory is written one tensor at a time.
  std::function<std::vector<std::byte>()> produce = {};
};

// The file-format name of a dtype ("F32", "F8_E4M3", "BOOL", ...); i4 has none and throws unsupported.
[[nodiscard]] std::string_view safetensors_name(DType dtype);

// A file before it is written.
struct SafetensorsLayout {
  std::string header;                // all bytes before the data: length prefix and padded JSON
  std::vector<std::size_t> order;    // indices of the items in the order of their data
  std::vector<std::uint64_t> sizes;  // bytes of each item, in the items' own order
  std::uint64_t file_size = 0;
};

// The layout that write_safetensors gives these items, whose data are not looked at. Throws invalid_argument for items
// that no reader would accept.
[[nodiscard]] SafetensorsLayout layout_safetensors(std::span<const SafetensorsItem> items,
                                                   const std::map<std::string, std::string>& metadata);

// Writes one file: items sorted by dtype, widest first, then name; header padded with spaces to a multiple of 8.
// The bytes are those that the format's reference implementation writes for the same tensors.
// Goes to a temporary file in the same folder (fallocate, write, fsync), then renames over `path` and fsyncs the
// folder; an existing file is never truncated in place. Throws invalid_argument for items that no reader would accept,
// no_space or io; the old file is then intact.
void write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsItem>& items,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace quench
