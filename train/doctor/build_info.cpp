#include "train/doctor/build_info.h"

#include "core/device/library_versions.h"

namespace quench {

std::string_view program_version() noexcept {
  return kBuildInfo.version;
}

Json build_info(std::optional<DeviceType> device) {
  Json libraries = Json::object();
  for (const LibraryVersion& library : library_versions(device)) libraries.set(library.name, library.version);
  return Json(Json::Object{{"version", kBuildInfo.version},
                           {"commit", kBuildInfo.commit.empty() ? Json() : Json(kBuildInfo.commit)},
                           {"compiler", kBuildInfo.compiler},
                           {"build_type", kBuildInfo.type},
                           {"libraries", std::move(libraries)}});
}

std::string build_info_text() {
  std::string text = fmt::format("quench {}\n{:<15}{}\n{:<15}{}, {}", kBuildInfo.version, "commit",
                                 kBuildInfo.commit.empty() ? "unknown: not built in a repository" : kBuildInfo.commit,
                                 "compiler", kBuildInfo.compiler, kBuildInfo.type);
  for (const LibraryVersion& library : library_versions())
    text += fmt::format("\n{:<15}{}", library.name, library.version);
  return text;
}

}  // namespace quench
