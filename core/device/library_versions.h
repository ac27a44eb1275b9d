#pragma once
// For `quench --version`, `quench doctor` and run records.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.h"

namespace quench {

struct LibraryVersion {
  std::string name;
  std::string version;
  std::string path;     // file that was loaded; empty for linked or missing libraries
  std::string missing;  // reason for none; may be empty
};

// By name; loads lazily opened libraries.
[[nodiscard]] std::vector<LibraryVersion> library_versions(std::optional<DeviceType> device = {});

struct LibraryPlace {
  std::string_view file;               // "libcudnn.so": start of the loaded file's name
  std::string (*missing)() = nullptr;  // reason; empty if loaded
};

// During static initialization. `version`: the version, or in brackets the reason for none. `device`: the library's
// only device type. `place`: of a library loaded at run time.
bool register_library(std::string_view name, std::string (*version)(), std::optional<DeviceType> device = {},
                      LibraryPlace place = {});

}  // namespace quench
