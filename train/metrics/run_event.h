#pragma once
// Step events of a run, logged in addition to metrics.

#include <cstdint>
#include <string>
#include <string_view>

namespace quench {

namespace run_events {
inline constexpr std::string_view kResume = "resume";      // resumed from the state after `step`
inline constexpr std::string_view kRollback = "rollback";  // rolled back to the state after `step`
inline constexpr std::string_view kSkip = "skip";          // update of `step` skipped
inline constexpr std::string_view kSpike = "spike";        // loss or gradient norm spike at `step`
}  // namespace run_events

struct RunEvent {
  std::int64_t step = 0;
  std::string_view name;  // name from run_events
  std::string message;    // display text; may be empty
  double unix_time = 0;   // seconds since 1970, set by MetricsLog when 0
};

}  // namespace quench
