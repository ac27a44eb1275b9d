#pragma once
// Reads tensors of a checkpoint by global coordinates, whatever number of processes wrote it.

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "train/checkpoint/manifest.h"

namespace quench {

class DataFile;

// Reads and checks the manifest of the checkpoint in `folder`. Throws not_found, corrupt, unsupported or io naming the
// file; corrupt as well when the folder is called step-N and the manifest is of another step.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& folder);

enum class Verify {
  hashes,  // every byte that is returned has been compared with its hash
  none,    // sizes and structure only
};

class CheckpointReader {
 public:
  // Opens step-N: checks the manifest, and of each data file the size, the save it belongs to and its header.
  // Throws Error: not_found (no manifest), corrupt (naming the file and what differs), unsupported (newer format), io.
  explicit CheckpointReader(std::filesystem::path folder, Verify verify = Verify::hashes);
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return folder_; }
  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
  [[nodiscard]] const CheckpointState& state() const noexcept { return manifest_.state; }
  [[nodiscard]] const TensorRecord* find(std::string_view name) const noexcept;
  // Throws not_found naming the checkpoint and the tensor.
  [[nodiscard]] const TensorRecord& at(std::string_view name) const;

  // Fills `destination` (contiguous, any device) with the whole tensor, or with the rows of `slice`. Its dtype and
  // shape must be the stored ones (invalid_argument). Throws corrupt naming tensor, rows and file when the stored
  // bytes do not match their hash; the destination's content is then unspecified.
  // Part of a stored shard costs one pass over the whole shard the first time, for its hash.
  void read(std::string_view name, const Tensor& destination);
  void read(std::string_view name, const Tensor& destination, ShardSlice slice);

  // Compares every stored byte of one tensor with its hash.
  void verify(std::string_view name);

 private:
  void read_shard(std::size_t tensor, std::size_t shard, std::uint64_t begin, std::span<std::byte> out);

  std::filesystem::path folder_;
  Verify verify_;
  Manifest manifest_;
  std::vector<std::unique_ptr<DataFile>> files_;
  std::unordered_map<std::string, std::size_t> index_;  // into manifest_.tensors
  std::vector<std::vector<bool>> verified_;             // [tensor][shard]: its hash was compared
};

struct VerifyReport {
  std::size_t files = 0;
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> faults;  // each names the file and, where there is one, the tensor
  [[nodiscard]] bool ok() const noexcept { return faults.empty(); }
};

// Reads every byte of a checkpoint and reports all that is wrong with it. Throws only when `folder` is no folder.
[[nodiscard]] VerifyReport verify_checkpoint(const std::filesystem::path& folder);

}  // namespace quench
