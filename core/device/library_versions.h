#pragma once
// The libraries that this program works with, for `quench --version` and the records of a run.

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

// Those that register_library has been told of, by name; for a device, those that work on it. A library that is opened
// when first used is opened for this.
[[nodiscard]] std::vector<LibraryVersion> library_versions(std::optional<DeviceType> device = {});

// Called during static initialisation by the part of the program that uses a library. `version` returns the library's
// version, or in brackets why there is none. `device`: the only one that the library works on.
bool register_library(std::string_view name, std::string (*version)(), std::optional<DeviceType> device = {});

}  // namespace quench
