#pragma once
// The thread that runs the model: the engine's passes, and other work with the model between them.

#include <functional>
#include <future>
#include <mutex>
#include <stop_token>
#include <vector>

#include "engine/engine.h"

namespace quench::serve {

class ModelThread {
 public:
  // The engine must outlive it.
  explicit ModelThread(Engine& engine) : engine_(engine) {}

  // Until `stop`. Calls that are waiting then fail.
  void run(const std::stop_token& stop);
  // Runs `work` in the thread of run(), between two passes; returns or throws as it does. Any other thread.
  void call(std::function<void()> work);

 private:
  Engine& engine_;
  std::mutex mutex_;
  std::vector<std::packaged_task<void()>> waiting_;
  std::stop_source passes_;  // ends the engine's present run
  bool ended_ = false;
};

}  // namespace quench::serve
