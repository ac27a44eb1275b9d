#include "distributed/nccl/communicator.h"

#include <thread>

#include "core/cuda/common/cuda_error.h"
#include "distributed/nccl/nccl_library.h"

namespace quench::distributed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::microseconds(50);
constexpr auto kFinalizeTime = std::chrono::seconds(10);
constexpr auto kUseTime = std::chrono::seconds(2);  // calls do not block, except on a full launch queue

}  // namespace

Communicator::Communicator(const ncclUniqueId& id, int rank, int size, Device device,
                           std::chrono::milliseconds join_timeout, const std::function<void()>& check_ranks)
    : device_(device) {
  const cuda::DeviceGuard guard(device_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check(nccl().comm_init_rank_config(&comm_, size, id, rank, &config));
  try {
    wait_ready(join_timeout, check_ranks);
  } catch (const Error&) {
    nccl().comm_abort(comm_);
    throw;
  }
}

Communicator::Use::Use(Communicator& communicator) : communicator_(communicator) {
  const std::scoped_lock lock(communicator_.mutex_);
  if (communicator_.aborted_) throw_communication_error(communicator_.cause_, communicator_.reason_);
  ++communicator_.users_;
}

Communicator::Use::~Use() {
  const std::scoped_lock lock(communicator_.mutex_);
  if (--communicator_.users_ == 0) communicator_.idle_.notify_all();
}

Communicator::~Communicator() {
  if (aborted_) return;
  const cuda::DeviceGuard guard(device_);
  try {
    check(nccl().comm_finalize(comm_));
    wait_ready(kFinalizeTime);
    nccl().comm_destroy(comm_);
  } catch (const Error&) {
    nccl().comm_abort(comm_);
  }
}

void Communicator::check(ncclResult_t result) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* last = nccl().get_last_error(comm_);
  throw CommunicationError(fmt::format("NCCL: {}{}{}", nccl().get_error_string(result),
                                       last != nullptr && *last != '\0' ? ": " : "", last != nullptr ? last : ""));
}

void Communicator::check_not_aborted() {
  if (!aborted_) return;
  const std::scoped_lock lock(mutex_);
  throw_communication_error(cause_, reason_);
}

void Communicator::wait_ready(std::chrono::milliseconds timeout, const std::function<void()>& check_ranks) {
  const auto deadline = Clock::now() + timeout;
  while (true) {
    if (check_ranks) check_ranks();
    {
      const Use use(*this);
      ncclResult_t state = ncclSuccess;
      check(nccl().comm_get_async_error(comm_, &state));
      if (state != ncclInProgress) return check(state);
    }
    if (Clock::now() >= deadline)
      throw CollectiveTimeout(fmt::format("NCCL: nothing within {} s", static_cast<double>(timeout.count()) / 1000));
    std::this_thread::sleep_for(kPause);
  }
}

void Communicator::run(const std::function<ncclResult_t(ncclComm_t)>& calls, std::chrono::milliseconds timeout) {
  const cuda::DeviceGuard guard(device_);
  ncclResult_t queued = ncclSuccess, ended = ncclSuccess;
  {
    const Use use(*this);
    check(nccl().group_start());
    queued = calls(comm_);
    ended = nccl().group_end();
    check_not_aborted();  // ended by it: comm_ may be gone
    check(queued);
    check(ended);
  }
  if (queued == ncclInProgress || ended == ncclInProgress) wait_ready(timeout);
}

void Communicator::abort(AbortCause cause, const std::string& reason) {
  {
    std::unique_lock lock(mutex_);
    if (aborted_) return;
    reason_ = reason;
    cause_ = cause;
    aborted_ = true;
    idle_.wait_for(lock, kUseTime, [this] { return users_ == 0; });
  }
  const cuda::DeviceGuard guard(device_);
  nccl().comm_abort(comm_);
}

std::string Communicator::background_error() {
  const std::scoped_lock lock(mutex_);
  if (aborted_) return reason_;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl().comm_get_async_error(comm_, &state);
  try {
    check(asked);
    check(state);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace quench::distributed
