#pragma once
// For `quench --version` and run records.

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

// By name; loads lazily opened libraries.
[[nodiscard]] std::vector<LibraryVersion> library_versions(std::optional<DeviceType> device = {});

// During static initialization. `version`: the version, or in brackets the reason for none. `device`: the library's
// only device type.
bool register_library(std::string_view name, std::string (*version)(), std::optional<DeviceType> device = {});

}  // namespace quench
