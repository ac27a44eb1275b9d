#pragma once
// One process's data file of a checkpoint: a safetensors file whose metadata names the save it belongs to.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "train/checkpoint/manifest.h"

namespace quench {

// Which save a data file belongs to; stored in its metadata.
struct SaveIdentity {
  std::string uuid;
  std::int64_t step = 0;
  int rank = 0;
  int world_size = 1;
};

// The layout of a data file, known before anything is written.
struct DataFilePlan {
  DataFileRecord record;            // name, rank, sizes, hash of the header
  std::string header;               // the file's first bytes
  std::vector<std::size_t> order;   // of the tensors in the file
  std::vector<ShardRecord> shards;  // one a tensor, in the order given; hashes are zero until written
};

// "rank-00003.safetensors"
[[nodiscard]] std::string data_file_name(int rank);

// Checks the tensors (names, slices, shapes, contiguity; throws invalid_argument naming the tensor) and lays them out:
// widest elements first, then by name. i4 has no safetensors type and is stored as its bytes, U8.
[[nodiscard]] DataFilePlan plan_data_file(const SaveIdentity& identity, std::span<const CheckpointTensor> tensors);

// Writes folder/<record.name>, synced, and fills the hashes of plan.shards. Tensors on other devices are copied to the
// host a piece at a time. Throws no_space or io.
void write_data_file(const std::filesystem::path& folder, DataFilePlan& plan,
                     std::span<const CheckpointTensor> tensors);

// An open data file whose size, header and identity agree with the manifest.
class DataFile {
 public:
  // Throws corrupt, not_found or io, naming the file.
  DataFile(const std::filesystem::path& folder, const Manifest& manifest, std::size_t index);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  // Reads bytes [offset, offset + out.size()) of the file; throws io, also when the file became shorter.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  void check_header(const Manifest& manifest, const DataFileRecord& record) const;
  void fail_if_of_other_save(std::span<const std::uint8_t> head, const Manifest& manifest,
                             const DataFileRecord& record) const;

  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace quench
