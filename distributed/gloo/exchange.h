#pragma once
// Messages between ranks of a Gloo context, with deadlines and abort.

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "distributed/communication_error.h"
#include "distributed/gloo/loop_calls.h"

namespace quench::distributed {

// Memory region of some transfers. A send matches the receive with the same slot on the other rank.
class Transfers;

class Exchange {
 public:
  Exchange(std::shared_ptr<gloo::Context> context, std::shared_ptr<LoopCalls> calls, std::chrono::milliseconds timeout)
      : context_(std::move(context)), calls_(std::move(calls)), timeout_(timeout) {}

  // Pending and later waits throw CommunicationError(reason) or CollectiveTimeout. Thread-safe.
  void abort(AbortCause cause, const std::string& reason);
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }
  [[nodiscard]] int rank() const { return context_->rank; }
  [[nodiscard]] int size() const { return context_->size; }

 private:
  friend class Transfers;
  void add(gloo::transport::UnboundBuffer* buffer);
  void remove(gloo::transport::UnboundBuffer* buffer);
  void check_not_aborted();

  std::shared_ptr<gloo::Context> context_;
  std::shared_ptr<LoopCalls> calls_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::mutex mutex_;
  std::string aborted_;
  AbortCause cause_ = AbortCause::lost;
  std::set<gloo::transport::UnboundBuffer*> waiting_;
};

class Transfers {
 public:
  Transfers(Exchange& exchange, void* bytes, std::size_t count);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Queued in order; errors are thrown by the wait. No-op for zero bytes.
  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes);
  void receive(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes);
  // Throw CommunicationError naming the pending ranks. Gloo does not report the completed peers: use one Transfers per
  // peer to know.
  void wait_sends();
  void wait_receives();

 private:
  using Wait = bool (gloo::transport::UnboundBuffer::*)(int*, std::chrono::milliseconds);
  void start(const char* what, int peer, std::function<void()> transfer);
  void check_started();
  void wait(std::vector<int>& peers, Wait wait_one, const char* what);

  Exchange& exchange_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  std::mutex mutex_;
  std::string failure_;  // reason why a transfer did not start
  std::vector<int> sends_;
  std::vector<int> receives_;
};

}  // namespace quench::distributed
