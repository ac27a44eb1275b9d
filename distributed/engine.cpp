#include "distributed/engine.h"

#include <array>

namespace quench::distributed {
namespace {

std::array<EngineFactory, kDeviceTypeCount>& factories() {
  static std::array<EngineFactory, kDeviceTypeCount> table;
  return table;
}

}  // namespace

bool register_engine(DeviceType type, EngineFactory factory) {
  factories()[static_cast<std::size_t>(type)] = std::move(factory);
  return true;
}

std::unique_ptr<GroupEngine> make_engine(Device device, const Store& store, const GroupOptions& options) {
  const EngineFactory& factory = factories()[static_cast<std::size_t>(device.type)];
  QUENCH_CHECK_AS(
      ErrorCode::unsupported, factory != nullptr,
      "this build has no collective operations for {}: it was built without {}; use --device cpu or one rank",
      device.to_string(), device.is_cpu() ? "Gloo" : "NCCL's header");
  return factory(device, store, options);
}

}  // namespace quench::distributed
