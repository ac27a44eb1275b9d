#pragma once
// Library versions for `quench --version` and run records.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.h"

namespace quench {

struct LibraryVersion {
  std::string name;
  std::string version;
};

// Registered libraries by name, all or those of a device. Loads lazily opened libraries.
[[nodiscard]] std::vector<LibraryVersion> library_versions(std::optional<DeviceType> device = {});

// Called during static initialization. `version` returns the version, or in brackets the reason for none. `device`: the
// only device type of the library.
bool register_library(std::string_view name, std::string (*version)(), std::optional<DeviceType> device = {});

}  // namespace quench
