#pragma once
// Device type for which the calling thread's work on the meta device is a plan: ops whose kernels there allocate
// workspaces then count them.

#include "core/device/device.h"

namespace quench {

// Scope of a plan; nestable.
class PlannedDevice {
 public:
  // `hopper`: a GPU with the kernels of compute capability 9.0.
  explicit PlannedDevice(DeviceType type, bool hopper = false) noexcept;
  ~PlannedDevice();
  PlannedDevice(const PlannedDevice&) = delete;
  PlannedDevice& operator=(const PlannedDevice&) = delete;

  // meta outside a scope.
  [[nodiscard]] static DeviceType current() noexcept;
  [[nodiscard]] static bool hopper() noexcept;

 private:
  DeviceType previous_;
  bool previous_hopper_;
};

}  // namespace quench
