#pragma once
// Threads that serve connections, one each, started when needed and bounded in number.

#include <httplib.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quench::serve {

// Where all threads serve, a new connection takes the place of one that waits for its next request; without such a one
// it is refused, by the calling thread.
class ConnectionThreads final : public httplib::TaskQueue {
 public:
  explicit ConnectionThreads(std::size_t most) : most_(most) {}
  ~ConnectionThreads() override { shutdown(); }

  void enqueue(std::function<void()> serve) override;
  // Returns when all connections have ended.
  void shutdown() override;

  // A connection waits for a thread.
  [[nodiscard]] bool pressed() const;
  // In the calling thread `serve` runs to refuse its connection.
  [[nodiscard]] static bool refusing() noexcept;

  // Scope in which the calling thread's connection waits for a request.
  class Idle {
   public:
    explicit Idle(ConnectionThreads& threads) : threads_(threads) { threads_.change_idle(1); }
    ~Idle() { threads_.change_idle(-1); }
    Idle(const Idle&) = delete;
    Idle& operator=(const Idle&) = delete;

   private:
    ConnectionThreads& threads_;
  };

 private:
  void work();
  void change_idle(std::ptrdiff_t by);
  // A thread for one more connection; the mutex is held.
  [[nodiscard]] bool find_thread();

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable waiting_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
  std::size_t open_ = 0;  // connections, queued ones included
  std::ptrdiff_t idle_ = 0;
  bool stopped_ = false;
};

}  // namespace quench::serve
