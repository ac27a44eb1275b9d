#pragma once
// Device timing of back-to-back repetitions without synchronization.

#include <functional>

#include "core/device/device.h"

namespace quench {

struct TimingOptions {
  // Untimed repetitions: at most this many and, from the second on, for this long; GEMMs autotune in them.
  int warm_up = 1;
  double warm_up_seconds = 1;
  // Timed repetitions: as many as fit into the seconds, between 3 and this.
  int repetitions = 15;
  double seconds = 0.5;
};

// Median milliseconds per call, from the end of one call's work to the end of the next: CUDA events of the current
// stream on a GPU, clock on a CPU.
[[nodiscard]] double median_milliseconds(Device device, const TimingOptions& options,
                                         const std::function<void()>& body);

}  // namespace quench
