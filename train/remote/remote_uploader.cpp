#include "train/remote/remote_uploader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/system/check.h"
#include "core/system/log.h"
#include "train/checkpoint/checkpoint_list.h"

namespace quench {
namespace {

constexpr double kLongestPause = 300, kLongestPauseAtEnd = 5;  // seconds

}  // namespace

RemoteUploader::RemoteUploader(std::string address, UploadOptions options)
    : address_(std::move(address)), options_(std::move(options)) {
  options_.pause = [this](double seconds) { pause(seconds); };
  thread_ = std::thread([this] { run(); });
}

RemoteUploader::~RemoteUploader() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    if (!queue_.empty() && !is_reported_)
      QUENCH_LOG_WARN("{}: {} did not arrive{}", address_, pending(), failure_.empty() ? "" : "; " + failure_);
  }
  changed_.notify_all();
  thread_.join();
}

void RemoteUploader::add(RemoteUpload upload) {
  {
    const std::lock_guard lock(mutex_);
    forget_deleted();
    queue_.push_back(std::move(upload));
  }
  changed_.notify_all();
}

std::optional<std::int64_t> RemoteUploader::in_flight() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() ? std::nullopt : std::optional(queue_.front().step);
}

void RemoteUploader::finish(double seconds) {
  std::unique_lock lock(mutex_);
  is_ending_ = true;
  forget_deleted();
  changed_.notify_all();
  if (!queue_.empty())
    QUENCH_LOG_INFO("waiting for the upload of {} to {}, at most {:.0f} s", pending(), address_, seconds);
  const bool done = changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return queue_.empty(); });
  is_ending_ = false;
  if (done) return;
  const std::string missing = pending(), reason = failure_;
  is_reported_ = true;
  QUENCH_FAIL(ErrorCode::io,
              "checkpoint.remote: {} did not arrive in {} within {:.0f} s (checkpoint.remote_wait){}{}; it is whole in "
              "{}, and the next start of this run sends the newest",
              missing, address_, seconds, reason.empty() ? "" : ": ", reason,
              queue_.front().path.parent_path().string());
}

void RemoteUploader::forget_deleted() {
  if (queue_.empty()) return;
  const auto is_deleted = [](const RemoteUpload& upload) {
    std::error_code ignored;
    return !std::filesystem::exists(upload.path / Manifest::kFileName, ignored);
  };
  queue_.erase(std::remove_if(queue_.begin() + 1, queue_.end(), is_deleted), queue_.end());
}

std::string RemoteUploader::pending() const {
  std::vector<std::string> names;
  for (const RemoteUpload& upload : queue_) names.push_back(step_name(upload.step));
  return fmt::format("{}", fmt::join(names, ", "));
}

void RemoteUploader::pause(double seconds) {
  std::unique_lock lock(mutex_);
  const auto begun = std::chrono::steady_clock::now();
  const auto is_over = [&] {
    const double most = is_ending_ ? std::min(seconds, kLongestPauseAtEnd) : seconds;
    return is_stopped_ || std::chrono::steady_clock::now() - begun >= std::chrono::duration<double>(most);
  };
  while (!is_over()) changed_.wait_for(lock, std::chrono::duration<double>(std::min(seconds, kLongestPauseAtEnd)));
  if (is_stopped_) throw hub::Stopped(1);
}

void RemoteUploader::run() {
  for (;;) {
    RemoteUpload next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_stopped_ || !queue_.empty(); });
      if (is_stopped_) return;
      next = queue_.front();
    }
    try {
      upload(next);
    } catch (const hub::Stopped&) {
      return;
    }
    const std::lock_guard lock(mutex_);
    queue_.pop_front();
    failure_.clear();
    changed_.notify_all();
  }
}

void RemoteUploader::tidy(RemoteStore& store, const RemoteUpload& done) {
  try {
    apply_remote_retention(store, done, options_);
  } catch (const hub::Stopped&) {
    throw;
  } catch (const std::exception& error) {
    QUENCH_LOG_WARN("{}: old checkpoints are not deleted: {}; will be tried again after the next upload", address_,
                    error.what());
  }
}

void RemoteUploader::upload(const RemoteUpload& next) {
  const auto begun = std::chrono::steady_clock::now();
  const auto stop = [this] {
    const std::lock_guard lock(mutex_);
    return is_stopped_ ? 1 : 0;
  };
  for (double seconds = options_.first_pause;; seconds = std::min(2 * seconds, kLongestPause)) {
    try {
      RemoteStore store(address_, stop, false);
      if (!upload_checkpoint(store, next, options_)) {
        QUENCH_LOG_DEBUG("{}: deleted or replaced before it was uploaded", next.path.string());
        return;
      }
      if (options_.rank != 0) return;
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
      QUENCH_LOG_INFO("{} is in the storage after {:.1f} s", store.text(step_name(next.step)), took.count());
      return tidy(store, next);
    } catch (const hub::Stopped&) {
      throw;
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      failure_ = error.what();
      QUENCH_LOG_WARN("checkpoint.remote: {} not sent yet: {}; trying again in {:.0f} s, training continues", pending(),
                      failure_, seconds);
    }
    pause(seconds);
  }
}

}  // namespace quench
