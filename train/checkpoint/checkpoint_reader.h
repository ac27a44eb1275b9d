#pragma once
// Checkpoint reader by global tensor coordinates, independent of the number of ranks that saved.

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

// Throws not_found, corrupt, unsupported or io naming the file; corrupt when the step of a folder step-N differs from
// the manifest's.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& folder);

// Checks of data that a CheckpointReader returns.
enum class Verify {
  hashes,  // hash of every returned byte
  none,    // sizes and structure only
};

class CheckpointReader {
 public:
  // Opens step-N: validates manifest, size, save UUID and header of each data file. Throws not_found (no manifest),
  // corrupt (naming file and difference), unsupported (newer format), io.
  explicit CheckpointReader(std::filesystem::path folder, Verify verify = Verify::hashes);
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return folder_; }
  [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
  [[nodiscard]] const CheckpointState& state() const noexcept { return manifest_.state; }
  [[nodiscard]] const TensorRecord* find(std::string_view name) const noexcept;
  // Throws not_found naming checkpoint and tensor.
  [[nodiscard]] const TensorRecord& at(std::string_view name) const;

  // Reads the tensor, or the rows of `slice` and of those the `columns` (length 0: all), into `destination`
  // (contiguous, any device, stored dtype and shape, else invalid_argument). Throws corrupt naming tensor, rows and
  // file on a hash mismatch; destination is then unspecified. The first partial read of a shard hashes the whole shard.
  void read(std::string_view name, const Tensor& destination);
  void read(std::string_view name, const Tensor& destination, ShardSlice slice, ShardSlice columns = {});

  // Hashes every stored byte of the tensor.
  void verify(std::string_view name);

 private:
  // Rows [slice.start, +length) and columns of a tensor that has, or of which are wanted, parts of columns.
  void read_parts(std::size_t tensor, ShardSlice slice, ShardSlice columns, std::byte* out);
  void read_shard(std::size_t tensor, std::size_t shard, std::uint64_t begin, std::span<std::byte> out);

  std::filesystem::path folder_;
  Verify verify_;
  Manifest manifest_;
  std::vector<std::unique_ptr<DataFile>> files_;
  std::unordered_map<std::string, std::size_t> index_;  // into manifest_.tensors
  std::vector<std::vector<bool>> verified_;             // [tensor][shard]
};

// Result of verify_checkpoint().
struct VerifyReport {
  std::size_t files = 0;
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> faults;  // each names the file and, if known, the tensor
  [[nodiscard]] bool ok() const noexcept { return faults.empty(); }
};

// Verifies every byte and collects all faults. Throws only when `folder` is not a folder.
[[nodiscard]] VerifyReport verify_checkpoint(const std::filesystem::path& folder);

}  // namespace quench
