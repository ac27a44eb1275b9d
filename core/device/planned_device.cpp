#include "core/device/planned_device.h"

namespace quench {
namespace {
thread_local DeviceType planned = DeviceType::meta;
thread_local bool planned_hopper = false;
}  // namespace

PlannedDevice::PlannedDevice(DeviceType type, bool hopper) noexcept
    : previous_(planned), previous_hopper_(planned_hopper) {
  planned = type;
  planned_hopper = hopper;
}
PlannedDevice::~PlannedDevice() {
  planned = previous_;
  planned_hopper = previous_hopper_;
}

DeviceType PlannedDevice::current() noexcept {
  return planned;
}

bool PlannedDevice::hopper() noexcept {
  return planned_hopper;
}

}  // namespace quench
