#pragma once
// Events of a run that are no metrics, such as rollbacks and loss spikes.

#include <cstdint>
#include <string>
#include <string_view>

namespace quench {

namespace run_events {
inline constexpr std::string_view kResume = "resume";         // from the state after `step`
inline constexpr std::string_view kRollback = "rollback";     // to the state after `step`
inline constexpr std::string_view kSkip = "skip";             // update of `step`
inline constexpr std::string_view kSpike = "spike";           // jump of loss or gradient norm
inline constexpr std::string_view kEarlyStop = "early_stop";  // after `step`
}  // namespace run_events

struct RunEvent {
  std::int64_t step = 0;
  std::string_view name;  // name in run_events
  std::string message;    // display text; may be empty
  double unix_time = 0;   // set by MetricsLog when 0
};

}  // namespace quench
