#include "core/device/library_versions.h"

#include <fmt/core.h>
#include <spdlog/version.h>
#include <xxhash.h>

#include <map>
#include <nlohmann/json.hpp>

namespace quench {
namespace {

struct Library {
  std::string (*version)();
  std::optional<DeviceType> device;
};
using Registry = std::map<std::string, Library, std::less<>>;

Registry& registry() {
  static Registry libraries;
  return libraries;
}

std::string dotted(unsigned number, unsigned major, unsigned minor) {
  return fmt::format("{}.{}.{}", number / major, number % major / minor, number % minor);
}

[[maybe_unused]] const bool libraries_registered[] = {
    register_library("fmt", [] { return dotted(FMT_VERSION, 10000, 100); }),
    register_library("spdlog",
                     [] { return fmt::format("{}.{}.{}", SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH); }),
    register_library("nlohmann-json",
                     [] {
                       return fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                          NLOHMANN_JSON_VERSION_PATCH);
                     }),
    register_library("xxHash", [] { return dotted(XXH_versionNumber(), 10000, 100); }),
};

}  // namespace

std::vector<LibraryVersion> library_versions(std::optional<DeviceType> device) {
  std::vector<LibraryVersion> versions;
  for (const auto& [name, library] : registry())
    if (!device || !library.device || library.device == device) versions.push_back({name, library.version()});
  return versions;
}

bool register_library(std::string_view name, std::string (*version)(), std::optional<DeviceType> device) {
  registry().emplace(std::string(name), Library{version, device});
  return true;
}

}  // namespace quench
