#pragma once
// Versions of the program and its libraries.

#include <optional>
#include <string>
#include <string_view>

#include "core/device/device.h"
#include "core/json/json.h"

namespace quench {

struct BuildInfo {
  std::string_view version;   // "0.2.0"
  std::string_view commit;    // "fee0d8f1a2b3", "-dirty" for modified files; empty outside git
  std::string_view compiler;  // "GNU 12.2.0"
  std::string_view type;      // "Release"
};
extern const BuildInfo kBuildInfo;

// "0.2.0".
[[nodiscard]] std::string_view program_version() noexcept;

// {"version", "commit", "compiler", "build_type", "libraries": {name: version}}, libraries of a device.
[[nodiscard]] Json build_info(std::optional<DeviceType> device = {});
// With all libraries.
[[nodiscard]] std::string build_info_text();

}  // namespace quench
