#pragma once
// One rank's data file: safetensors with the save UUID in its metadata.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "train/checkpoint/manifest.h"

namespace quench {

// In the data file's metadata.
struct SaveIdentity {
  std::string uuid;
  std::int64_t step = 0;
  int rank = 0;
  int world_size = 1;
};

// Layout of a data file.
struct DataFilePlan {
  DataFileRecord record;  // name, rank, sizes, header hash
  std::string header;
  std::vector<std::size_t> order;   // tensor indices in file order
  std::vector<ShardRecord> shards;  // per tensor, in input order; hashes are zero until written
};

// "rank-00003.safetensors"
[[nodiscard]] std::string data_file_name(int rank);

// Validates tensors (names, slices, shapes, contiguity; invalid_argument naming the tensor) and lays them out: widest
// elements first, then by name. i4 is stored as U8 bytes, for lack of a safetensors dtype.
[[nodiscard]] DataFilePlan plan_data_file(const SaveIdentity& identity, std::span<const CheckpointTensor> tensors);

// Writes and syncs folder/<record.name>; fills the hashes of plan.shards. Device tensors are copied in chunks. Throws
// no_space or io.
void write_data_file(const std::filesystem::path& folder, DataFilePlan& plan,
                     std::span<const CheckpointTensor> tensors);

// Open data file; size, header and identity match the manifest.
class DataFile {
 public:
  // Throws corrupt, not_found or io naming the file.
  DataFile(const std::filesystem::path& folder, const Manifest& manifest, std::size_t index);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  // Throws io, also for a truncated file.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  void check_header(const Manifest& manifest, const DataFileRecord& record) const;
  void fail_if_of_other_save(std::span<const std::uint8_t> head, const Manifest& manifest,
                             const DataFileRecord& record) const;

  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace quench
