#pragma once
// Work for the thread of Gloo's event loop.
//
// Gloo's loop does not wait for a connection's lock: it polls until the thread that holds it lets go. A thread that
// starts a transfer holds it during a system call, and may lose its core there to the loop itself, which then polls for
// a whole time slice. With more threads than cores that is most of the run. So the loop's own thread starts every
// transfer: it is the only one that takes these locks.

#include <gloo/transport/tcp/device.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace quench::distributed {

class LoopCalls final : public gloo::transport::tcp::Handler {
 public:
  // Throws failed where no event descriptor can be had.
  explicit LoopCalls(std::shared_ptr<gloo::transport::tcp::Device> device);
  ~LoopCalls() override;
  LoopCalls(const LoopCalls&) = delete;
  LoopCalls& operator=(const LoopCalls&) = delete;

  // Calls are made in order. They may not throw. From any thread.
  void post(const void* owner, std::function<void()> call);
  // Drops the owner's calls that have not been made; waits for one that is being made.
  void cancel(const void* owner);

  void handleEvents(int events) override;

 private:
  struct Call {
    const void* owner;
    std::function<void()> make;
  };

  std::shared_ptr<gloo::transport::tcp::Device> device_;
  int event_;
  std::mutex mutex_;  // also held while a call is made
  std::deque<Call> calls_;
};

}  // namespace quench::distributed
