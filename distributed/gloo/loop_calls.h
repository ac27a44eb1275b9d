#pragma once
// Work queue of Gloo's event-loop thread.
//
// Gloo's loop spins on a connection's lock, which a thread that starts a transfer holds during a system call:
// preempted, it costs a time slice, dominant with more threads than cores. All transfers therefore start on the loop's
// thread, the only one to take these locks.

#include <gloo/transport/tcp/device.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace quench::distributed {

class LoopCalls final : public gloo::transport::tcp::Handler {
 public:
  explicit LoopCalls(std::shared_ptr<gloo::transport::tcp::Device> device);
  ~LoopCalls() override;
  LoopCalls(const LoopCalls&) = delete;
  LoopCalls& operator=(const LoopCalls&) = delete;

  // Calls run in order and must not throw. Thread-safe.
  void post(const void* owner, std::function<void()> call);
  // Drops the owner's queued calls; waits for a running one.
  void cancel(const void* owner);

  void handleEvents(int events) override;

 private:
  struct Call {
    const void* owner;
    std::function<void()> make;
  };

  std::shared_ptr<gloo::transport::tcp::Device> device_;
  int event_;
  std::mutex mutex_;
  std::deque<Call> calls_;
};

}  // namespace quench::distributed
