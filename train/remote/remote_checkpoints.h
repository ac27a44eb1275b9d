#pragma once
// Checkpoints of a run at checkpoint.remote: what a start takes from there, and what its saves send there.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/ranks.h"
#include "train/config/run_config.h"
#include "train/remote/remote_uploader.h"

namespace quench {

// Throws bad_config for a malformed address, or without credentials; asks no server.
void require_remote_settings(const CheckpointSection& section);

// With checkpoint.remote, on all ranks: as above; bad_config or io if the run may not list, write and remove objects
// there. Rank 0 sends three small requests. Collective.
void require_remote(const CheckpointSection& section, const distributed::Ranks& ranks);

// For the training thread of one rank.
class RemoteCheckpoints {
 public:
  RemoteCheckpoints(const CheckpointSection& section, int rank, int ranks)
      : section_(section), rank_(rank), ranks_(ranks) {}

  // Downloads what checkpoint.resume asks for into checkpoint.folder: the newest whole checkpoint, if it is newer than
  // the newest valid one there, or that of a step that is not there. Damaged ones are skipped with a warning. Throws
  // bad_config where a run that starts anew would meet another's checkpoints.
  void fetch() const;

  void start();
  // A completed save, or the checkpoint that the run resumed from, which a killed run may not have sent. `line` and
  // `kept`: RemoteUpload, of rank 0.
  void add(RemoteUpload upload) { uploader_->add(std::move(upload)); }
  // Steps whose folders must stay. Any thread.
  [[nodiscard]] std::vector<std::int64_t> in_use() const;
  // At the end of the run: waits, checkpoint.remote_wait at most. Throws io naming what has not arrived.
  void finish();

 private:
  const CheckpointSection& section_;
  int rank_, ranks_;
  std::unique_ptr<RemoteUploader> uploader_;
};

}  // namespace quench
