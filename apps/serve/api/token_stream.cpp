#include "apps/serve/api/token_stream.h"

#include <utility>

namespace quench::serve {

bool TokenStream::push(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || (event.token && events_.size() >= kMostEvents)) return false;
    events_.push_back(std::move(event));
  }
  ready_.notify_one();
  return true;
}

void TokenStream::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  events_.clear();
}

std::optional<TokenStream::Event> TokenStream::pop(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  if (!ready_.wait_for(lock, most, [this] { return !events_.empty(); })) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace quench::serve
