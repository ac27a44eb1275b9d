#pragma once
// Tokens of a request's choices, on their way from the engine's thread to the connection's.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>

#include "engine/engine.h"

namespace quench::serve {

class TokenStream {
 public:
  using Clock = std::chrono::steady_clock;

  struct Event {
    std::size_t choice = 0;
    std::optional<SampledToken> token{};
    std::optional<EngineResult> end{};  // in place of a token
    Clock::time_point at = Clock::now();
  };

  // Unread events; about 1 MiB.
  static constexpr std::size_t kMostEvents = 16384;

  // False, and the event is dropped, once closed, or for a token with kMostEvents unread. Ends are always taken.
  bool push(Event event);
  // Later tokens end their requests.
  void close();
  // Waits at most this long.
  [[nodiscard]] std::optional<Event> pop(std::chrono::milliseconds most);

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Event> events_;
  bool closed_ = false;
};

}  // namespace quench::serve
