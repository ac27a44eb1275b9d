#include "apps/serve/api/model_thread.h"

#include <utility>

#include "core/system/check.h"

namespace quench::serve {

void ModelThread::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<std::packaged_task<void()>> work;
    std::stop_source passes;
    {
      const std::lock_guard lock(mutex_);
      work.swap(waiting_);
      passes_ = passes;
    }
    for (std::packaged_task<void()>& task : work) {
      task();
      engine_.try_step();  // calls that follow each other closely do not hold up answers
    }
    const std::stop_callback forward(stop, [&passes] { passes.request_stop(); });
    engine_.run(passes.get_token());
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  waiting_.clear();
}

void ModelThread::call(std::function<void()> work) {
  std::packaged_task<void()> task(std::move(work));
  std::future<void> done = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    QUENCH_CHECK_AS(ErrorCode::failed, !ended_, "the server is shutting down");
    waiting_.push_back(std::move(task));
    passes_.request_stop();
  }
  done.get();
}

}  // namespace quench::serve
