#include "core/device/library_versions.h"

#include <fmt/core.h>
#include <link.h>
#include <spdlog/version.h>
#include <xxhash.h>

#include <map>
#include <nlohmann/json.hpp>

namespace quench {
namespace {

struct Library {
  std::string (*version)();
  std::optional<DeviceType> device;
  LibraryPlace place;
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

// Path of the first loaded file whose name begins with `file`, or empty.
std::string loaded_path(std::string_view file) {
  struct Search {
    std::string_view file;
    std::string path;
  } search{file, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* loaded, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        const std::string_view path = loaded->dlpi_name;
        if (!path.substr(path.rfind('/') + 1).starts_with(wanted.file)) return 0;
        wanted.path = path;
        return 1;
      },
      &search);
  return search.path;
}

}  // namespace

std::vector<LibraryVersion> library_versions(std::optional<DeviceType> device) {
  std::vector<LibraryVersion> versions;
  for (const auto& [name, library] : registry())
    if (!device || !library.device || library.device == device) {
      LibraryVersion entry{name, library.version(), {}, {}};
      if (library.place.missing != nullptr) entry.missing = library.place.missing();
      // A library of another version may stay loaded.
      if (!library.place.file.empty() && entry.missing.empty()) entry.path = loaded_path(library.place.file);
      versions.push_back(std::move(entry));
    }
  return versions;
}

bool register_library(std::string_view name, std::string (*version)(), std::optional<DeviceType> device,
                      LibraryPlace place) {
  registry().emplace(std::string(name), Library{version, device, place});
  return true;
}

}  // namespace quench
