#include "core/device/own_folder.h"

#include <dlfcn.h>

namespace quench {

std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code failed;
  // The name of a program is what it was called by.
  const bool is_library = std::filesystem::path(info.dli_fname).filename().string().find(".so") != std::string::npos;
  const std::filesystem::path file = std::filesystem::canonical(is_library ? info.dli_fname : "/proc/self/exe", failed);
  return failed ? std::filesystem::path() : file.parent_path();
}

std::filesystem::path python_packages() {
  const std::filesystem::path folder = own_folder();
  const std::filesystem::path package = folder.parent_path();
  return folder.filename() == "lib" && package.filename() == "quench" ? package.parent_path() : std::filesystem::path();
}

}  // namespace quench
