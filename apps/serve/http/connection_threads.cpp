#include "apps/serve/http/connection_threads.h"

#include <system_error>

#include "core/system/threads.h"

namespace quench::serve {
namespace {

thread_local bool refuses = false;

}  // namespace

bool ConnectionThreads::find_thread() {
  if (stopped_) return false;
  if (open_ < threads_.size()) return true;
  if (threads_.size() < most_) {
    try {
      threads_.emplace_back([this] { work(); });
      return true;
    } catch (const std::system_error&) {  // limit of the process
    }
  }
  return static_cast<std::ptrdiff_t>(open_ - threads_.size()) < idle_;
}

void ConnectionThreads::enqueue(std::function<void()> serve) {
  {
    const std::lock_guard lock(mutex_);
    if (find_thread()) {
      queue_.push_back(std::move(serve));
      ++open_;
      waiting_.notify_one();
      return;
    }
  }
  refuses = true;
  serve();
  refuses = false;
}

void ConnectionThreads::work() {
  set_thread_count(1);  // parallel loops of tokenizers would start threads for each connection
  std::unique_lock lock(mutex_);
  for (;;) {
    waiting_.wait(lock, [this] { return stopped_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> serve = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    serve();
    serve = nullptr;
    lock.lock();
    --open_;
  }
}

void ConnectionThreads::shutdown() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    threads.swap(threads_);
  }
  waiting_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

bool ConnectionThreads::pressed() const {
  const std::lock_guard lock(mutex_);
  return open_ > threads_.size();
}

bool ConnectionThreads::refusing() noexcept {
  return refuses;
}

void ConnectionThreads::change_idle(std::ptrdiff_t by) {
  const std::lock_guard lock(mutex_);
  idle_ += by;
}

}  // namespace quench::serve
