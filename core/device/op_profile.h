#pragma once
// Device time per op and shape, from event pairs around kernel slot calls; the host does not synchronize.

#include <cstdint>
#include <string>
#include <vector>

#include "core/device/device.h"

namespace quench {

struct OpTime {
  std::string label;  // op_label of the call
  std::int64_t calls = 0;
  double milliseconds = 0;
};

class OpProfile {
 public:
  // Ops of the calling thread on `device` until stop(). Not nestable.
  static void start(Device device);
  // Synchronizes. Descending times; empty without a profile.
  static std::vector<OpTime> stop();
  [[nodiscard]] static bool active() noexcept { return active_; }

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

// Calls, milliseconds and share of `wall_ms` per op and between ops.
[[nodiscard]] std::string profile_table(const std::vector<OpTime>& times, double wall_ms);

}  // namespace quench
