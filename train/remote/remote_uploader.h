#pragma once
// Uploads of a run's checkpoints in the background, in the order of their saves. A storage that fails is asked again
// until it answers; training is not told.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "train/remote/remote_upload.h"

namespace quench {

// For the training thread of one rank.
class RemoteUploader {
 public:
  RemoteUploader(std::string address, UploadOptions options);
  // Stops at once; warns of what has not arrived.
  ~RemoteUploader();
  RemoteUploader(const RemoteUploader&) = delete;
  RemoteUploader& operator=(const RemoteUploader&) = delete;

  void add(RemoteUpload upload);
  // Step that is being uploaded, whose folder must stay. Any thread.
  [[nodiscard]] std::optional<std::int64_t> in_flight() const;
  // Waits until all have arrived. Throws io after `seconds`, naming what has not and why.
  void finish(double seconds);

 private:
  void run();
  // One upload, until it has arrived or its folder is gone. Throws hub::Stopped.
  void upload(const RemoteUpload& next);
  // Failures of the retention are warnings.
  void tidy(RemoteStore& store, const RemoteUpload& done);
  void pause(double seconds);
  // Forgets those after the first whose folders are deleted. The mutex is held.
  void forget_deleted();
  // "step-20, step-30"; the mutex is held.
  [[nodiscard]] std::string pending() const;

  std::string address_;
  UploadOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RemoteUpload> queue_;  // the first is in flight
  std::string failure_;             // last error of the upload in flight
  bool is_ending_ = false;          // no long pauses
  bool is_stopped_ = false;
  bool is_reported_ = false;  // what has not arrived, by finish()
  std::thread thread_;
};

}  // namespace quench
