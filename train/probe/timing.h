#pragma once
// Times of work on a device, as a run sees them: repetition after repetition, without waiting in between.

#include <functional>

#include "core/device/device.h"

namespace quench {

struct TimingOptions {
  // Repetitions before the measurement, at most so many and, from the second on, for so long: matrix products
  // choose their algorithms.
  int warm_up = 1;
  double warm_up_seconds = 1;
  // Timed repetitions: what fits into the seconds, between 3 and so many.
  int repetitions = 15;
  double seconds = 0.5;
};

// Median milliseconds of one call, from its work's end to the end of the next one's: by events of the current stream on
// a GPU, by the clock on a CPU.
[[nodiscard]] double median_milliseconds(Device device, const TimingOptions& options,
                                         const std::function<void()>& body);

}  // namespace quench
