#include "train/checkpoint/manifest_rules.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_set>

#include "core/system/utf8.h"

namespace quench {
namespace {

constexpr std::int64_t kMaxDimension = std::int64_t{1} << 48;
constexpr std::size_t kMaxNameBytes = 512;

// nullopt for a fraction of a byte, or beyond 63 bits.
std::optional<std::uint64_t> checked_row_bytes(const Shape& shape, DType dtype, std::int64_t rows) {
  std::int64_t bits = 0;
  if (rows < 0 || __builtin_mul_overflow(rows, std::int64_t{bit_width(dtype)}, &bits)) return std::nullopt;
  for (int axis = 1; axis < shape.rank(); ++axis)
    if (shape[axis] < 0 || __builtin_mul_overflow(bits, shape[axis], &bits)) return std::nullopt;
  if (bits % 8 != 0) return std::nullopt;
  return static_cast<std::uint64_t>(bits / 8);
}

bool is_tensor_name(std::string_view name) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  return !name.empty() && name.size() <= kMaxNameBytes && std::none_of(name.begin(), name.end(), control) &&
         find_invalid_utf8(name) == std::string_view::npos;
}

std::string find_file_fault(const Manifest& manifest) {
  std::unordered_set<std::string_view> names;
  std::set<int> ranks;
  for (const DataFileRecord& file : manifest.files) {
    if (!is_plain_file_name(file.name) || file.name == Manifest::kFileName)
      return fmt::format("\"{}\" is not a valid name of a data file", file.name);
    if (!names.insert(file.name).second) return fmt::format("data file {} is listed twice", file.name);
    if (file.rank < 0 || file.rank >= manifest.world_size)
      return fmt::format("data file {} is of rank {}, but the world size is {}", file.name, file.rank,
                         manifest.world_size);
    if (!ranks.insert(file.rank).second) return fmt::format("rank {} has two data files", file.rank);
    if (file.header_size > file.size)
      return fmt::format("data file {} has a header of {} bytes but only {} bytes", file.name, file.header_size,
                         file.size);
  }
  return {};
}

std::string find_tensor_fault(const Manifest& manifest, const TensorRecord& tensor) {
  for (const std::int64_t dim : tensor.shape)
    if (dim < 0 || dim > kMaxDimension)
      return fmt::format("tensor '{}' has the impossible shape {}", tensor.name, tensor.shape.to_string());
  if (!checked_row_bytes(tensor.shape, tensor.dtype, tensor.rows()))
    return fmt::format("tensor '{}' of shape {} and dtype {} has no valid size in bytes", tensor.name,
                       tensor.shape.to_string(), to_string(tensor.dtype));
  std::int64_t row = 0, column = 0;  // column: of rows that are stored in part
  ShardSlice band;
  for (const ShardRecord& shard : tensor.shards) {
    const bool continues = column > 0 ? shard.slice == band && shard.columns.length > 0 : shard.slice.start == row;
    if (!continues || shard.slice.length < 0 || shard.slice.length > tensor.rows() - row)
      return fmt::format("rows [{}, {}+{}) of tensor '{}' do not continue at row {} of {}", shard.slice.start,
                         shard.slice.start, shard.slice.length, tensor.name, row, tensor.rows());
    const ShardSlice& columns = shard.columns;
    const std::int64_t width = tensor.shape.rank() > 1 ? tensor.shape[1] : 0;
    if (columns.length != 0 && (columns.start != column || columns.length < 0 || columns.length > width - column))
      return fmt::format("columns [{}, {}+{}) of rows [{}, {}+{}) of tensor '{}' do not continue at column {} of {}",
                         columns.start, columns.start, columns.length, shard.slice.start, shard.slice.start,
                         shard.slice.length, tensor.name, column, width);
    const auto bytes = checked_row_bytes(shape_of_columns(tensor.shape, columns), tensor.dtype, shard.slice.length);
    if (!bytes || *bytes != shard.size)
      return fmt::format("rows [{}, {}) of tensor '{}' ({}{}) cannot have {} bytes", shard.slice.start,
                         shard.slice.start + shard.slice.length, tensor.name, to_string(tensor.dtype),
                         tensor.shape.to_string(), shard.size);
    band = shard.slice;
    column += columns.length;
    if (columns.length == 0 || column == width) {
      row += shard.slice.length;
      column = 0;
    }
    if (shard.file < 0 || static_cast<std::size_t>(shard.file) >= manifest.files.size())
      return fmt::format("tensor '{}' lies in data file number {} of {}", tensor.name, shard.file,
                         manifest.files.size());
  }
  if (column != 0)
    return fmt::format("rows [{}, {}+{}) of tensor '{}' are stored up to column {} alone", band.start, band.start,
                       band.length, tensor.name, column);
  if (row != tensor.rows())
    return fmt::format("tensor '{}' has {} rows, but only {} are stored", tensor.name, tensor.rows(), row);
  return {};
}

std::string find_coverage_fault(const Manifest& manifest) {
  struct Range {
    int file;
    std::uint64_t offset;
    std::uint64_t size;
    const std::string* tensor;
  };
  std::vector<Range> ranges;
  for (const TensorRecord& tensor : manifest.tensors)
    for (const ShardRecord& shard : tensor.shards)
      ranges.push_back({shard.file, shard.offset, shard.size, &tensor.name});
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.file, a.offset, a.size) < std::tie(b.file, b.offset, b.size);
  });
  std::vector<std::uint64_t> end;
  for (const DataFileRecord& file : manifest.files) end.push_back(file.header_size);
  for (const Range& range : ranges) {
    const auto file = static_cast<std::size_t>(range.file);
    if (range.offset != end[file] || range.size > manifest.files[file].size - end[file])
      return fmt::format("tensor '{}' at byte {} of {} does not continue at byte {} of {}", *range.tensor, range.offset,
                         manifest.files[file].name, end[file], manifest.files[file].size);
    end[file] += range.size;
  }
  for (std::size_t i = 0; i < end.size(); ++i)
    if (end[i] != manifest.files[i].size)
      return fmt::format("bytes from {} to {} of {} belong to no tensor", end[i], manifest.files[i].size,
                         manifest.files[i].name);
  return {};
}

}  // namespace

Shape shape_of_columns(Shape shape, ShardSlice columns) {
  if (columns.length > 0 && shape.rank() > 1) shape[1] = columns.length;
  return shape;
}

std::uint64_t row_bytes(const Shape& shape, DType dtype, std::int64_t rows) {
  const auto bytes = checked_row_bytes(shape, dtype, rows);
  QUENCH_CHECK(bytes.has_value(), "{} rows of {}{} are not a whole number of bytes below 2^63 bits", rows,
               to_string(dtype), shape.to_string());
  return *bytes;
}

bool is_plain_file_name(std::string_view name) noexcept {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 255 && name.front() != '.' && std::all_of(name.begin(), name.end(), plain);
}

std::string find_manifest_fault(const Manifest& manifest) {
  if (manifest.world_size < 1) return fmt::format("the world size is {}", manifest.world_size);
  const CheckpointState& state = manifest.state;
  if (state.step < 0 || state.tokens_seen < 0 || state.samples < 0)
    return fmt::format("step {}, tokens seen {} and samples {} must not be negative", state.step, state.tokens_seen,
                       state.samples);
  if (manifest.tensors.size() > Manifest::kMaxTensors)
    return fmt::format("{} tensors; at most {} are possible", manifest.tensors.size(), Manifest::kMaxTensors);
  if (std::string fault = find_file_fault(manifest); !fault.empty()) return fault;
  std::unordered_set<std::string_view> names;
  for (const TensorRecord& tensor : manifest.tensors) {
    if (!is_tensor_name(tensor.name))
      return fmt::format("\"{}\" is not a valid tensor name (1 to {} bytes of UTF-8 without control characters)",
                         replace_invalid_utf8(tensor.name), kMaxNameBytes);
    if (!names.insert(tensor.name).second) return fmt::format("tensor '{}' is listed twice", tensor.name);
    if (std::string fault = find_tensor_fault(manifest, tensor); !fault.empty()) return fault;
  }
  return find_coverage_fault(manifest);
}

}  // namespace quench
