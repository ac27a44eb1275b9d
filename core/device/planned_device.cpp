#include "core/device/planned_device.h"

namespace quench {
namespace {
thread_local DeviceType planned = DeviceType::meta;
}  // namespace

PlannedDevice::PlannedDevice(DeviceType type) noexcept : previous_(planned) {
  planned = type;
}
PlannedDevice::~PlannedDevice() {
  planned = previous_;
}

DeviceType PlannedDevice::current() noexcept {
  return planned;
}

}  // namespace quench
