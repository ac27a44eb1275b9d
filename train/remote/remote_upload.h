#pragma once
// Upload of one checkpoint, and what follows from it in the storage.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "train/checkpoint/run_line.h"
#include "train/remote/remote_store.h"

namespace quench {

// Checkpoint to upload.
struct RemoteUpload {
  std::int64_t step = 0;
  std::filesystem::path path;      // step-N
  RunLine line{};                  // after its save; rank 0
  std::vector<std::int64_t> kept;  // steps exempt from deletion; rank 0
};

// Place of this rank, and what the storage keeps.
struct UploadOptions {
  int rank = 0;
  int ranks = 1;
  int keep_latest = 3;                          // 0: all
  double first_pause = 5;                       // seconds after a failure of the storage, doubled each time
  std::function<void(double seconds)> pause{};  // throws hub::Stopped; set by the uploader
};

// Sends the files of this rank: those of the ranks that wrote them, modulo the number of ranks. Rank 0 waits until the
// storage has all others, then sends the manifest. Files that the storage has are not sent again. A manifest of another
// save of this step is removed before any file is sent. False: the folder was deleted or replaced meanwhile, nothing is
// to be sent. Throws the errors of S3Client.
bool upload_checkpoint(RemoteStore& store, const RemoteUpload& upload, const UploadOptions& options);

// After an upload, rank 0: marks checkpoints that the run has abandoned, and deletes those beyond keep_latest. Exempt:
// `kept`, superseded ones, and those pinned here or there. Rests of interrupted uploads of earlier
// steps are deleted too.
void apply_remote_retention(RemoteStore& store, const RemoteUpload& upload, const UploadOptions& options);

}  // namespace quench
