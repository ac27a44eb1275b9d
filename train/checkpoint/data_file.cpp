#include "train/checkpoint/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "core/safetensors/safetensors.h"
#include "core/safetensors/safetensors_limits.h"
#include "core/system/file.h"
#include "train/checkpoint/hash.h"

namespace quench {
namespace {

constexpr std::size_t kWritePiece = std::size_t{4} << 20;  // hashed in cache, then written

SafetensorsItem stored_form(const CheckpointTensor& tensor) {
  const DType dtype = tensor.data.dtype();
  if (dtype != DType::i4) return {tensor.name, dtype, tensor.data.shape()};
  Shape bytes = tensor.data.shape();
  bytes[-1] /= 2;
  return {tensor.name, DType::u8, bytes};
}

void check_tensor_part(const CheckpointTensor& tensor) {
  QUENCH_CHECK(tensor.data.defined(), "checkpoint tensor '{}' has no data", tensor.name);
  QUENCH_CHECK(tensor.data.is_contiguous(), "checkpoint tensor '{}' ({}) is not contiguous", tensor.name,
               tensor.data.describe());
  const Shape& global = tensor.global_shape;
  const std::int64_t rows = global.rank() == 0 ? 1 : global[0];
  const ShardSlice slice = tensor.slice;
  QUENCH_CHECK(slice.start >= 0 && slice.length >= 0 && slice.length <= rows - slice.start,
               "checkpoint tensor '{}': rows [{}, {}+{}) lie outside its {} rows", tensor.name, slice.start,
               slice.start, slice.length, rows);
  const ShardSlice columns = tensor.columns;
  QUENCH_CHECK(columns.length == 0 || (global.rank() > 1 && columns.start >= 0 && columns.length > 0 &&
                                       columns.length <= global[1] - columns.start),
               "checkpoint tensor '{}': columns [{}, {}+{}) lie outside {}", tensor.name, columns.start, columns.start,
               columns.length, global.to_string());
  Shape local = shape_of_columns(global, columns);
  if (global.rank() > 0) local[0] = slice.length;
  QUENCH_CHECK(tensor.data.shape() == local && (global.rank() > 0 || slice.length == 1),
               "checkpoint tensor '{}' is {}, expected shape {} for rows [{}, {}+{}) of {}", tensor.name,
               tensor.data.describe(), local.to_string(), slice.start, slice.start, slice.length, global.to_string());
}

std::uint64_t write_tensor(OutputFile& file, const Tensor& tensor) {
  StreamHash hash;
  const bool on_host = tensor.device().is_cpu();
  const std::size_t total = tensor.nbytes();
  Tensor host;  // staging for device tensors
  for (std::size_t done = 0; done < total;) {
    const std::size_t size = std::min(kWritePiece, total - done);
    const std::byte* source = static_cast<const std::byte*>(tensor.raw_data()) + done;
    if (!on_host) {
      if (!host.defined()) host = Tensor::empty({static_cast<std::int64_t>(std::min(kWritePiece, total))}, DType::u8);
      Backend& owner = backend(tensor.device().type);
      const Stream stream = current_stream(tensor.device());
      owner.copy(host.raw_data(), Device{}, source, tensor.device(), size, stream);
      owner.synchronize(stream);
      source = static_cast<const std::byte*>(host.raw_data());
    }
    const std::span piece(source, size);
    hash.update(piece);
    file.write(piece);
    done += size;
  }
  return hash.digest();
}

std::string metadata_value(const SafetensorsHeader& header, const std::string& key) {
  const auto found = header.metadata.find(key);
  return found == header.metadata.end() ? "(none)" : found->second;
}

}  // namespace

std::string data_file_name(int rank) {
  return fmt::format("rank-{:05d}.safetensors", rank);
}

DataFilePlan plan_data_file(const SaveIdentity& identity, std::span<const CheckpointTensor> tensors) {
  std::vector<SafetensorsItem> items;
  std::unordered_set<std::string_view> names;
  for (const CheckpointTensor& tensor : tensors) {
    check_tensor_part(tensor);
    items.push_back(stored_form(tensor));
    // Further rows of the tensor: the file has another name for them, the manifest none.
    if (!names.insert(tensor.name).second && tensor.slice.start > 0)
      items.back().name += fmt::format("@{}", tensor.slice.start);
  }
  SafetensorsLayout layout = layout_safetensors(items, {{"format", "pt"},
                                                        {"quench.save_uuid", identity.uuid},
                                                        {"quench.step", std::to_string(identity.step)},
                                                        {"quench.rank", std::to_string(identity.rank)},
                                                        {"quench.world_size", std::to_string(identity.world_size)}});
  DataFilePlan plan;
  plan.shards.resize(tensors.size());
  std::uint64_t offset = layout.header.size();
  for (const std::size_t i : layout.order) {
    plan.shards[i] = {0, tensors[i].slice, offset, layout.sizes[i], 0, tensors[i].columns};
    offset += layout.sizes[i];
  }
  StreamHash hash;
  hash.update(layout.header);
  plan.record = {data_file_name(identity.rank), identity.rank, offset, layout.header.size(), hash.digest()};
  plan.header = std::move(layout.header);
  plan.order = std::move(layout.order);
  return plan;
}

void write_data_file(const std::filesystem::path& folder, DataFilePlan& plan,
                     std::span<const CheckpointTensor> tensors) {
  OutputFile file(folder / plan.record.name, plan.record.size);
  file.write(plan.header);
  for (const std::size_t i : plan.order) plan.shards[i].xxh3 = write_tensor(file, tensors[i].data);
  file.close();
}

DataFile::DataFile(const std::filesystem::path& folder, const Manifest& manifest, std::size_t index) {
  const DataFileRecord& record = manifest.files.at(index);
  path_ = folder / record.name;
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // FIFOs do not block and are rejected below
  QUENCH_CHECK_AS(errno == ENOENT ? ErrorCode::corrupt : ErrorCode::io, file_ >= 0,
                  "cannot open {}, which the manifest lists: {}", path_.string(), errno_text(errno));
  try {
    struct stat info {};
    QUENCH_CHECK_AS(ErrorCode::io, ::fstat(file_, &info) == 0, "cannot inspect {}: {}", path_.string(),
                    errno_text(errno));
    QUENCH_CHECK_AS(ErrorCode::corrupt, S_ISREG(info.st_mode), "{} is not a regular file", path_.string());
    QUENCH_CHECK_AS(ErrorCode::corrupt, static_cast<std::uint64_t>(info.st_size) == record.size,
                    "{} has {} bytes, {} in the manifest; the file is damaged or incomplete", path_.string(),
                    info.st_size, record.size);
    check_header(manifest, record);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

DataFile::~DataFile() {
  ::close(file_);
}

void DataFile::check_header(const Manifest& manifest, const DataFileRecord& record) const {
  QUENCH_CHECK_AS(ErrorCode::corrupt, record.header_size <= kSafetensorsMaxHeaderBytes + 8,
                  "{}: a header of {} bytes is impossible", path_.string(), record.header_size);
  std::vector<std::uint8_t> head(record.header_size);
  read(0, std::as_writable_bytes(std::span(head)));
  StreamHash hash;
  hash.update(std::as_bytes(std::span(head)));
  if (hash.digest() == record.header_xxh3) return;
  fail_if_of_other_save(head, manifest, record);
  QUENCH_FAIL(ErrorCode::corrupt, "{}: the header is damaged: its hash is {}, {} in the manifest", path_.string(),
              format_hash(hash.digest()), format_hash(record.header_xxh3));
}

// Instead of a hash mismatch.
void DataFile::fail_if_of_other_save(std::span<const std::uint8_t> head, const Manifest& manifest,
                                     const DataFileRecord& record) const {
  SafetensorsHeader header;
  try {
    header = parse_safetensors_header(head, record.size, path_.string());
  } catch (const Error&) {
    return;
  }
  const std::string uuid = metadata_value(header, "quench.save_uuid");
  const std::string rank = metadata_value(header, "quench.rank");
  if (uuid == manifest.save_uuid && rank == std::to_string(record.rank)) return;
  QUENCH_FAIL(ErrorCode::corrupt,
              "{} belongs to save {} (step {}, rank {}), not to save {} (step {}, rank {}) of this manifest; files of "
              "different checkpoints were mixed",
              path_.string(), uuid, metadata_value(header, "quench.step"), rank, manifest.save_uuid,
              manifest.state.step, record.rank);
}

void DataFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const std::size_t size = std::min<std::size_t>(out.size(), std::size_t{64} << 20);
    const ssize_t got = ::pread(file_, out.data(), size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    QUENCH_CHECK_AS(ErrorCode::io, got >= 0, "cannot read {} at byte {}: {}", path_.string(), offset,
                    errno_text(errno));
    QUENCH_CHECK_AS(ErrorCode::io, got > 0, "{} became shorter while it was read: no byte {}", path_.string(), offset);
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace quench
