#include "train/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "core/system/file.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/data_file.h"
#include "train/checkpoint/hash.h"

namespace quench {
namespace {

constexpr std::uint64_t kReadPiece = std::uint64_t{4} << 20;

// Reads a shard once, verifies its hash, copies bytes from `begin` on: returned bytes are the hashed ones. Throws
// corrupt naming tensor, rows and file.
void read_verified(const DataFile& file, const TensorRecord& tensor, const ShardRecord& shard, std::uint64_t begin,
                   std::span<std::byte> out) {
  StreamHash hash;
  std::vector<std::byte> buffer;
  const std::uint64_t end = begin + out.size();
  for (std::uint64_t at = 0; at < shard.size;) {
    const std::uint64_t size = std::min(kReadPiece, shard.size - at);
    if (at >= begin && at + size <= end) {
      const auto piece = out.subspan(at - begin, size);
      file.read(shard.offset + at, piece);
      hash.update(piece);
    } else {
      buffer.resize(size);
      file.read(shard.offset + at, buffer);
      hash.update(buffer);
      const std::uint64_t from = std::max(at, begin);
      const std::uint64_t to = std::min(at + size, end);
      if (from < to) std::memcpy(out.data() + (from - begin), buffer.data() + (from - at), to - from);
    }
    at += size;
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, hash.digest() == shard.xxh3,
                  "{}: tensor '{}' (rows {} to {} of {}) is damaged: its hash is {}, {} in the manifest",
                  file.path().string(), tensor.name, shard.slice.start, shard.slice.start + shard.slice.length,
                  tensor.rows(), format_hash(hash.digest()), format_hash(shard.xxh3));
}

}  // namespace

Manifest read_manifest(const std::filesystem::path& folder) {
  const auto path = folder / Manifest::kFileName;
  Manifest manifest = Manifest::parse(read_file(path, Manifest::kMaxBytes), path.string());
  const auto step = parse_step_name(folder.filename().string());
  QUENCH_CHECK_AS(ErrorCode::corrupt, !step || *step == manifest.state.step,
                  "{} holds the checkpoint of step {}; the folder was renamed or its content replaced", folder.string(),
                  manifest.state.step);
  return manifest;
}

CheckpointReader::CheckpointReader(std::filesystem::path folder, Verify verify)
    : folder_(std::move(folder)), verify_(verify), manifest_(read_manifest(folder_)) {
  for (std::size_t i = 0; i < manifest_.files.size(); ++i)
    files_.push_back(std::make_unique<DataFile>(folder_, manifest_, i));
  for (std::size_t i = 0; i < manifest_.tensors.size(); ++i) {
    index_.emplace(manifest_.tensors[i].name, i);
    verified_.emplace_back(manifest_.tensors[i].shards.size(), false);
  }
}

CheckpointReader::~CheckpointReader() = default;

const TensorRecord* CheckpointReader::find(std::string_view name) const noexcept {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &manifest_.tensors[found->second];
}

const TensorRecord& CheckpointReader::at(std::string_view name) const {
  const TensorRecord* tensor = find(name);
  QUENCH_CHECK_AS(ErrorCode::not_found, tensor != nullptr, "checkpoint {} has no tensor '{}'", folder_.string(), name);
  return *tensor;
}

void CheckpointReader::read(std::string_view name, const Tensor& destination) {
  read(name, destination, {0, at(name).rows()});
}

void CheckpointReader::read(std::string_view name, const Tensor& destination, ShardSlice slice, ShardSlice columns) {
  const TensorRecord& tensor = at(name);
  QUENCH_CHECK(slice.start >= 0 && slice.length >= 0 && slice.length <= tensor.rows() - slice.start,
               "checkpoint {}: rows [{}, {}+{}) lie outside the {} rows of tensor '{}'", folder_.string(), slice.start,
               slice.start, slice.length, tensor.rows(), name);
  QUENCH_CHECK(columns.length == 0 || (tensor.shape.rank() > 1 && columns.start >= 0 && columns.length > 0 &&
                                       columns.length <= tensor.shape[1] - columns.start),
               "checkpoint {}: columns [{}, {}+{}) lie outside tensor '{}' of shape {}", folder_.string(),
               columns.start, columns.start, columns.length, name, tensor.shape.to_string());
  Shape expected = shape_of_columns(tensor.shape, columns);
  if (expected.rank() > 0) expected[0] = slice.length;
  QUENCH_CHECK(destination.defined() && destination.dtype() == tensor.dtype && destination.shape() == expected &&
                   destination.is_contiguous(),
               "checkpoint {}: tensor '{}' is stored as {}{}; it cannot be read into {}", folder_.string(), name,
               to_string(tensor.dtype), expected.to_string(), destination.describe());
  if (destination.nbytes() == 0) return;
  Tensor host = destination.device().is_cpu() ? destination : Tensor::empty(expected, tensor.dtype);
  auto* out = static_cast<std::byte*>(host.raw_data());
  const std::size_t number = index_.at(tensor.name);
  const bool in_parts = columns.length > 0 || std::ranges::any_of(tensor.shards, [](const ShardRecord& shard) {
                          return shard.columns.length > 0;
                        });
  if (in_parts) read_parts(number, slice, columns, out);
  for (std::size_t i = 0; i < tensor.shards.size() && !in_parts; ++i) {
    const ShardSlice stored = tensor.shards[i].slice;
    const std::int64_t from = std::max(slice.start, stored.start);
    const std::int64_t to = std::min(slice.start + slice.length, stored.start + stored.length);
    if (from >= to) continue;
    const std::uint64_t bytes = row_bytes(tensor.shape, tensor.dtype, to - from);
    read_shard(number, i, row_bytes(tensor.shape, tensor.dtype, from - stored.start), {out, bytes});
    out += bytes;
  }
  if (!destination.device().is_cpu()) Tensor(destination).copy_from(host);
}

void CheckpointReader::read_parts(std::size_t number, ShardSlice slice, ShardSlice columns, std::byte* out) {
  const TensorRecord& tensor = manifest_.tensors[number];
  const auto all = [&](ShardSlice part) { return part.length > 0 ? part : ShardSlice{0, tensor.shape[1]}; };
  const auto bytes_of = [&](std::int64_t width) {
    return width == 0 ? 0 : row_bytes(shape_of_columns(tensor.shape, {0, width}), tensor.dtype, 1);
  };
  const ShardSlice wanted = all(columns);
  const std::uint64_t out_stride = bytes_of(wanted.length);
  std::vector<std::byte> rows;
  for (std::size_t i = 0; i < tensor.shards.size(); ++i) {
    const ShardSlice stored = tensor.shards[i].slice, width = all(tensor.shards[i].columns);
    const std::int64_t from = std::max(slice.start, stored.start);
    const std::int64_t to = std::min(slice.start + slice.length, stored.start + stored.length);
    const std::int64_t left = std::max(wanted.start, width.start);
    const std::int64_t right = std::min(wanted.start + wanted.length, width.start + width.length);
    if (from >= to || left >= right) continue;
    const std::uint64_t stride = bytes_of(width.length), size = bytes_of(right - left);
    rows.resize(static_cast<std::size_t>(to - from) * stride);
    read_shard(number, i, static_cast<std::uint64_t>(from - stored.start) * stride, rows);
    for (std::int64_t row = from; row < to; ++row)
      std::memcpy(out + static_cast<std::uint64_t>(row - slice.start) * out_stride + bytes_of(left - wanted.start),
                  rows.data() + static_cast<std::uint64_t>(row - from) * stride + bytes_of(left - width.start), size);
  }
}

void CheckpointReader::verify(std::string_view name) {
  const TensorRecord& tensor = at(name);
  for (const ShardRecord& shard : tensor.shards)
    read_verified(*files_[static_cast<std::size_t>(shard.file)], tensor, shard, 0, {});
  verified_[index_.at(tensor.name)].assign(tensor.shards.size(), true);
}

void CheckpointReader::read_shard(std::size_t tensor, std::size_t shard, std::uint64_t begin,
                                  std::span<std::byte> out) {
  const TensorRecord& record = manifest_.tensors[tensor];
  const ShardRecord& stored = record.shards[shard];
  const DataFile& file = *files_[static_cast<std::size_t>(stored.file)];
  const bool whole = begin == 0 && out.size() == stored.size;
  if (verify_ == Verify::none || (verified_[tensor][shard] && !whole)) {
    file.read(stored.offset + begin, out);
    return;
  }
  read_verified(file, record, stored, begin, out);
  verified_[tensor][shard] = true;
}

VerifyReport verify_checkpoint(const std::filesystem::path& folder) {
  std::error_code ignored;
  QUENCH_CHECK_AS(ErrorCode::not_found, std::filesystem::is_directory(folder, ignored), "{} is not a folder",
                  folder.string());
  VerifyReport report;
  const auto guarded = [&](const auto& body) {
    try {
      body();
    } catch (const Error& error) {
      report.faults.emplace_back(error.what());
    }
  };
  Manifest manifest;
  guarded([&] { manifest = read_manifest(folder); });
  std::vector<std::unique_ptr<DataFile>> files(manifest.files.size());
  for (std::size_t i = 0; i < files.size(); ++i)
    guarded([&] {
      files[i] = std::make_unique<DataFile>(folder, manifest, i);
      ++report.files;
    });
  for (const TensorRecord& tensor : manifest.tensors) {
    for (const ShardRecord& shard : tensor.shards) {
      const auto& file = files[static_cast<std::size_t>(shard.file)];
      if (!file) continue;  // already reported
      guarded([&] { read_verified(*file, tensor, shard, 0, {}); });
      report.bytes += shard.size;
    }
    ++report.tensors;
  }
  return report;
}

}  // namespace quench
