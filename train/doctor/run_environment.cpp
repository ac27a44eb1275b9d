#include "train/doctor/run_environment.h"

#include <unistd.h>

#include <array>

#include "core/device/cpu_level.h"
#include "core/memory/allocator.h"
#include "core/memory/memory_limit.h"
#include "core/system/threads.h"
#include "train/doctor/build_info.h"

namespace quench {

Json run_environment(Device device) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const Allocator& allocator = Allocator::of(device);
  const DeviceMemory memory =
      within_limit(backend(device.type).memory(device), allocator.stats().reserved, allocator.limit());
  Json json = Json::object();
  json.set("quench", program_version());
  json.set("build", build_info(device.type));
  json.set("host", std::string(host.data()));
  json.set("process", static_cast<std::int64_t>(::getpid()));
  json.set("device", device.to_string());
  json.set("device_name", backend(device.type).device_name(device));
  json.set("device_memory_bytes", memory.total_bytes);
  json.set("threads", static_cast<std::int64_t>(thread_count()));
  json.set("cpu_level", std::string(cpu_level_name()));
  return json;
}

}  // namespace quench
