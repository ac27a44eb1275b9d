#pragma once
// Checkpoints of a run in S3-compatible storage. Below the run's address they have the names of a checkpoint folder:
// step-N/manifest.json, step-N/rank-00000.safetensors, ... A manifest is stored after all files that it names, and
// removed before them: a checkpoint is whole where its manifest is.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/s3/s3_client.h"
#include "train/checkpoint/manifest.h"

namespace quench {

// Objects below step-N.
struct RemoteCheckpoint {
  std::int64_t step = 0;
  bool has_manifest = false;
  bool superseded = false;
  bool pinned = false;  // by an object that no save writes
  std::vector<s3::S3Object> objects{};

  [[nodiscard]] bool is_usable() const noexcept { return has_manifest && !superseded; }
};

// "step-N/FILE"
[[nodiscard]] std::string remote_name(std::int64_t step, std::string_view file);

// For one thread.
class RemoteStore {
 public:
  // Metadata of each object: UUID of the save.
  static constexpr std::string_view kSaveKey = "quench-save";

  // Reads credentials anew. Throws bad_config for the address or without credentials. `patient`: repeats failed
  // requests for a minute, else for seconds.
  RemoteStore(std::string_view address, hub::StopPoll stop, bool patient = true);

  [[nodiscard]] s3::S3Client& client() noexcept { return client_; }
  // Bytes of the parts in which files are sent.
  [[nodiscard]] std::uint64_t part_bytes() const noexcept { return part_bytes_; }
  [[nodiscard]] std::string text(std::string_view name = {}) const { return client_.place().text(name); }

  // Lists, writes and removes an object. Throws the errors of S3Client.
  void probe();
  // By descending step.
  [[nodiscard]] std::vector<RemoteCheckpoint> list();
  // Downloads to folder/step-N, which appears when all of it is there and verified. A damaged step-N is kept as
  // kept-step-N-<uuid>. Throws corrupt naming what is missing or damaged, no_space (bytes needed and free).
  void fetch(const RemoteCheckpoint& checkpoint, const std::filesystem::path& folder);
  // UUID of the save whose manifest is stored; nullopt: none.
  [[nodiscard]] std::optional<std::string> saved_uuid(std::int64_t step);
  // The manifest first.
  void remove(const RemoteCheckpoint& checkpoint);
  void mark_superseded(std::int64_t step, std::int64_t by);

 private:
  RemoteStore(s3::S3Settings settings, std::string_view address, hub::StopPoll stop);
  [[nodiscard]] Manifest read_manifest(const RemoteCheckpoint& checkpoint, std::string& text);

  std::uint64_t part_bytes_;
  s3::S3Client client_;
};

}  // namespace quench
