#include "train/checkpoint/checkpoint_writer.h"

#include <ranges>
#include <system_error>
#include <utility>

#include "core/system/log.h"
#include "core/system/output_folder.h"
#include "distributed/communication_error.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/checkpoint_save.h"
#include "train/checkpoint/retention.h"

namespace quench {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::filesystem::path folder, const RunLock* lock, CheckpointOptions options)
    : folder_(std::move(folder)), options_(std::move(options)), line_{.from = options_.resumed_from} {
  QUENCH_CHECK_AS(ErrorCode::bad_config, options_.keep_latest >= 0,
                  "checkpoint.keep_latest is {}; expected 0 (keep all) or more", options_.keep_latest);
  kept_on_disk_ = options_.kept.value_or(-1);
  if (first()) probe_checkpoint_folder(folder_);
  folder_ = std::filesystem::canonical(folder_);
  if (!first()) return;
  QUENCH_CHECK(lock != nullptr && is_within(folder_, lock->folder()),
               "checkpoint folder {} is outside the locked run folder {}", folder_.string(),
               lock != nullptr ? lock->folder().string() : "(none)");
  remove_leftovers(folder_);
  if (options_.kept && !inspect_checkpoint(*options_.kept, folder_ / step_name(*options_.kept)).valid)
    kept_on_disk_ = -1;
}

CheckpointWriter::~CheckpointWriter() {
  try {
    collect();
  } catch (...) {  // logged by collect
  }
}

void CheckpointWriter::reserve(std::span<const CheckpointTensor> tensors) {
  if (options_.async) snapshot_.reserve(tensors);
}

void CheckpointWriter::save(const CheckpointState& state, std::span<const CheckpointTensor> tensors) {
  const auto called = Clock::now();
  if (worker_.joinable() && !worker_done_)
    QUENCH_LOG_WARN("saving step {} waits for the save of step {}, which is still being written", state.step,
                    step_in_flight_);
  collect();
  ++saves_;
  step_in_flight_ = state.step;
  kept_ = next_kept_;
  if (!options_.async) {
    write(state, tensors, called);
    collect();
    return;
  }
  const auto copies = snapshot_.take(tensors);
  worker_done_ = false;
  try {
    worker_ = std::thread([this, state, copies, called, stalled = seconds_since(called)] {
      write(state, copies, called);
      if (!error_) reports_.back().stall_seconds = stalled;
      worker_done_ = true;
    });
  } catch (const std::system_error& error) {
    QUENCH_LOG_WARN("no thread for the checkpoint ({}); writing it now", error.what());
    write(state, copies, called);
    collect();
  }
}

std::vector<std::filesystem::path> CheckpointWriter::saved() const {
  std::vector<std::filesystem::path> paths;
  for (const std::int64_t step : line_.saved | std::views::reverse) paths.push_back(folder_ / step_name(step));
  return paths;
}

std::vector<SaveReport> CheckpointWriter::poll() {
  if (worker_.joinable() && (!worker_done_ || (error_ && options_.peers != nullptr))) return {};
  collect();
  return std::exchange(reports_, {});
}

std::vector<SaveReport> CheckpointWriter::wait() {
  if (worker_.joinable()) worker_.join();
  return std::exchange(reports_, {});
}

std::vector<SaveReport> CheckpointWriter::finish() {
  collect();
  const int failures = std::exchange(failures_, 0);
  const int saves = std::exchange(saves_, 0);
  if (failures > 0 && options_.on_error != OnSaveError::stop) {
    const std::string message =
        fmt::format("{} of {} checkpoints could not be saved; the first: {}", failures, saves, first_failure_);
    if (first_failure_relayed_) throw distributed::RelayedError(first_failure_code_, message);
    throw Error(first_failure_code_, message);
  }
  return std::exchange(reports_, {});
}

bool CheckpointWriter::is_in_line(std::int64_t step, std::int64_t saved) const {
  const CheckpointInfo info = inspect_checkpoint(step, folder_ / step_name(step));
  return info.valid && !info.superseded && line_.keeps(step, saved);
}

// On the worker thread if async.
void CheckpointWriter::write(const CheckpointState& state, std::span<const CheckpointTensor> tensors,
                             Clock::time_point called) {
  try {
    snapshot_.wait();
    const auto start = Clock::now();
    const SavedCheckpoint saved = save_checkpoint(folder_, state, tensors, options_.peers.get(), &line_);
    const double seconds = seconds_since(start);
    reports_.push_back({state.step, saved.path, saved.bytes, seconds_since(called), seconds});
    if (!first()) return;
    QUENCH_LOG_INFO("saved {} ({:.1f} MiB in {:.2f} s)", saved.path.string(),
                    static_cast<double>(saved.bytes) / (1 << 20), seconds);
    if (!kept_ || is_in_line(*kept_, state.step)) kept_on_disk_ = kept_.value_or(-1);
    apply_policy(state.step);
  } catch (...) {
    error_ = std::current_exception();
  }
}

void CheckpointWriter::apply_policy(std::int64_t saved) const {
  RetentionPolicy policy{options_.keep_latest, options_.pinned};
  policy.keep_steps.push_back(saved);
  if (const auto kept_step = kept()) policy.keep_steps.push_back(*kept_step);
  if (options_.resumed_from) policy.keep_steps.push_back(*options_.resumed_from);
  if (options_.in_use)
    for (const std::int64_t step : options_.in_use()) policy.keep_steps.push_back(step);
  apply_retention(folder_, policy);
}

void CheckpointWriter::delete_unused() {
  if (first() && !line_.saved.empty()) apply_policy(*line_.saved.rbegin());
}

void CheckpointWriter::collect() {
  if (worker_.joinable()) worker_.join();
  if (!error_) return;
  const std::exception_ptr error = std::exchange(error_, nullptr);
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& failure) {
    QUENCH_LOG_ERROR("saving step {} failed, earlier checkpoints are untouched: {}", step_in_flight_, failure.what());
    if (failures_++ == 0) {
      const auto* known = dynamic_cast<const Error*>(&failure);
      first_failure_code_ = known != nullptr ? known->code() : ErrorCode::failed;
      first_failure_ = failure.what();
      first_failure_relayed_ = dynamic_cast<const distributed::RelayedError*>(&failure) != nullptr;
    }
    if (options_.on_error == OnSaveError::stop) throw;
  }
}

}  // namespace quench
