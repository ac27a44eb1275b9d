#pragma once
// What this program is and what it was built with and works with.

#include <optional>
#include <string>
#include <string_view>

#include "core/device/device.h"
#include "core/json/json.h"

namespace quench {

struct BuildInfo {
  std::string_view version;  // "0.2.0"
  std::string_view commit;   // "fee0d8f1a2b3", with "-dirty" behind it where files differed; empty outside a repository
  std::string_view compiler;  // "GNU 12.2.0"
  std::string_view type;      // "Release"
};
extern const BuildInfo kBuildInfo;

// The version of the program, "0.2.0".
[[nodiscard]] std::string_view program_version() noexcept;

// {"version", "commit", "compiler", "build_type", "libraries": {name: version}}, of the libraries that work on a
// device.
[[nodiscard]] Json build_info(std::optional<DeviceType> device = {});
// The same in lines, for people, of all libraries.
[[nodiscard]] std::string build_info_text();

}  // namespace quench
