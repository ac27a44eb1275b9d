#pragma once
// A non-blocking NCCL communicator: calls that do not end in time, or after an abort, throw instead of hanging.

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>

#include "core/device/device.h"
#include "distributed/communication_error.h"

namespace quench::distributed {

class Communicator {
 public:
  // Collective over `size` ranks with the same id. Throws failed when they are not all there within `join_timeout`, and
  // what `check` throws, which is asked while they are awaited.
  Communicator(const ncclUniqueId& id, int rank, int size, Device device, std::chrono::milliseconds join_timeout,
               const std::function<void()>& check);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Queues what `calls` does with the communicator, as one group of NCCL. Throws CommunicationError where NCCL reports
  // an error, the time is over, or the communicator has been aborted.
  void run(const std::function<ncclResult_t(ncclComm_t)>& calls, std::chrono::milliseconds timeout);
  // What is queued ends, with any values, and later calls throw CommunicationError(reason), or CollectiveTimeout. From
  // any thread.
  void abort(AbortCause cause, const std::string& reason);
  // What went wrong in the background: another rank that is gone, say. Empty: nothing.
  [[nodiscard]] std::string background_error();

 private:
  void check(ncclResult_t result) const;
  void wait_ready(std::chrono::milliseconds timeout, const std::function<void()>& check = {});
  void check_not_aborted();

  Device device_;
  ncclComm_t comm_ = nullptr;
  std::mutex mutex_;  // of reason_, and of destroying comm_
  std::string reason_;
  AbortCause cause_ = AbortCause::lost;
  std::atomic<bool> aborted_{false};
};

}  // namespace quench::distributed
