#pragma once
// Rehearsal of work whose time and memory its input decides: a child process does it first, within limits.

#include <cstddef>
#include <functional>
#include <string_view>

namespace quench {

// Most that a rehearsal takes.
struct RehearsalLimits {
  unsigned cpu_seconds = 10;
  unsigned seconds = 60;
  std::size_t bytes = std::size_t{1} << 30;  // beyond those of this process
};

// Runs `work` in a copy of this process that has the calling thread alone. It may allocate, but neither log nor take
// locks that another thread may hold. Throws bad_config with the message of an exception of the work, or naming the
// limit that it hits, either about `what` ("the schema"); failed where no process starts.
void rehearse(std::string_view what, const RehearsalLimits& limits, const std::function<void()>& work);

}  // namespace quench
