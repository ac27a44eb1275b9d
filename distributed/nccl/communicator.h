#pragma once
// Non-blocking NCCL communicator: calls throw after a timeout or an abort.

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "core/device/device.h"
#include "distributed/communication_error.h"

namespace quench::distributed {

class Communicator {
 public:
  // Collective over `size` ranks with the same id. Throws failed on a join timeout. `check` is polled meanwhile; its
  // exceptions propagate.
  Communicator(const ncclUniqueId& id, int rank, int size, Device device, std::chrono::milliseconds join_timeout,
               const std::function<void()>& check);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Queues the NCCL calls as one group. Throws CommunicationError on an NCCL error or after an abort, CollectiveTimeout
  // after a timeout or an abort for one.
  void run(const std::function<ncclResult_t(ncclComm_t)>& calls, std::chrono::milliseconds timeout);
  // Aborts queued operations (results undefined); later calls throw CommunicationError(reason) or CollectiveTimeout.
  // Thread-safe; waits a little for calls of other threads, and ends one that blocks.
  void abort(AbortCause cause, const std::string& reason);
  // Asynchronous error, as of a lost rank. Empty: none.
  [[nodiscard]] std::string background_error();

 private:
  // A call on comm_, which abort() frees. Throws after an abort.
  class Use {
   public:
    explicit Use(Communicator& communicator);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Communicator& communicator_;
  };

  void check(ncclResult_t result) const;
  void wait_ready(std::chrono::milliseconds timeout, const std::function<void()>& check = {});
  void check_not_aborted();

  Device device_;
  ncclComm_t comm_ = nullptr;
  std::mutex mutex_;  // guard of the members below and background_error()'s call
  std::condition_variable idle_;
  int users_ = 0;
  std::string reason_;
  AbortCause cause_ = AbortCause::lost;
  std::atomic<bool> aborted_{false};
};

}  // namespace quench::distributed
