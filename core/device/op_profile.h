#pragma once
// Device time of every op call over a stretch of a run, by op and shape.
//
// While a profile is on, each call of a kernel slot is bracketed by two events on its stream. The host does
// not wait, so the times are those of calls back to back.

#include <cstdint>
#include <string>
#include <vector>

#include "core/device/device.h"

namespace quench {

struct OpTime {
  std::string label;  // the op, with shapes where the op gives them
  std::int64_t calls = 0;
  double milliseconds = 0;
};

class OpProfile {
 public:
  // Profiles ops of this device by the calling thread until stop(). One at a time.
  static void start(Device device);
  // Waits for the device. Longest first; empty when no profile was on.
  static std::vector<OpTime> stop();
  [[nodiscard]] static bool active() noexcept { return active_; }

  // Brackets one call; for KernelSlot.
  class Call {
   public:
    explicit Call(std::string label);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
  };

 private:
  static thread_local constinit bool active_;
};

// A table, one row an op: calls, milliseconds, share of the total, and of `wall_ms` what no op accounts for.
[[nodiscard]] std::string profile_table(const std::vector<OpTime>& times, double wall_ms);

}  // namespace quench
