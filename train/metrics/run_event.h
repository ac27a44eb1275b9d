#pragma once
// Events of a run at a step, besides its metrics.

#include <cstdint>
#include <string>
#include <string_view>

namespace quench {

namespace run_events {
inline constexpr std::string_view kResume = "resume";      // training started again from the state after `step`
inline constexpr std::string_view kRollback = "rollback";  // training went back to the state after `step`
inline constexpr std::string_view kSkip = "skip";          // the update of `step` was dropped
inline constexpr std::string_view kSpike = "spike";  // loss or gradient norm of `step` was far above the ones before
}  // namespace run_events

struct RunEvent {
  std::int64_t step = 0;
  std::string_view name;  // of run_events
  std::string message;    // a line for people; may be empty
  double unix_time = 0;   // seconds since 1970, set by MetricsLog when 0
};

}  // namespace quench
