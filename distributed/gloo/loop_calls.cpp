#include "distributed/gloo/loop_calls.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/system/check.h"

namespace quench::distributed {

LoopCalls::LoopCalls(std::shared_ptr<gloo::transport::tcp::Device> device)
    : device_(std::move(device)), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  QUENCH_CHECK_AS(ErrorCode::failed, event_ >= 0, "eventfd: {}", std::strerror(errno));
  device_->registerDescriptor(event_, EPOLLIN, this);
}

LoopCalls::~LoopCalls() {
  device_->unregisterDescriptor(event_, this);
  ::close(event_);
}

void LoopCalls::post(const void* owner, std::function<void()> call) {
  bool first = false;
  {
    const std::scoped_lock lock(mutex_);
    first = calls_.empty();
    calls_.push_back({owner, std::move(call)});
  }
  if (first) ::eventfd_write(event_, 1);
}

void LoopCalls::cancel(const void* owner) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(calls_, [owner](const Call& call) { return call.owner == owner; });
}

void LoopCalls::handleEvents(int /*events*/) {
  eventfd_t count = 0;
  ::eventfd_read(event_, &count);
  const std::scoped_lock lock(mutex_);
  while (!calls_.empty()) {
    calls_.front().make();
    calls_.pop_front();
  }
}

}  // namespace quench::distributed
