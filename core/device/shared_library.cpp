#include "core/device/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <filesystem>

#include "core/device/own_folder.h"
#include "core/system/check.h"

namespace quench {
namespace {

// Major versions searched below and above the wanted one.
constexpr int kMajorDistance = 5;

std::string file_of(const SharedLibraryName& name, int major) {
  return fmt::format("{}.{}", name.file, major);
}

// Folders of libraries of nvidia-* wheels: site-packages/nvidia/cudnn/lib, nvidia/cu13/lib, ...
std::vector<std::string> wheel_folders() {
  std::vector<std::string> folders;
  std::error_code ignored;
  const std::filesystem::path packages = python_packages();
  if (packages.empty()) return folders;
  for (std::filesystem::directory_iterator it(packages / "nvidia", ignored), end; !ignored && it != end;
       it.increment(ignored))
    folders.push_back((it->path() / "lib").string());
  std::ranges::sort(folders);
  return folders;
}

// The file in wheels, by the dynamic linker's search, then in the folders.
std::vector<std::string> places(const SharedLibraryName& name, int major) {
  const std::string file = file_of(name, major);
  std::vector<std::string> paths;
  for (const std::string& folder : wheel_folders()) paths.push_back(folder + '/' + file);
  paths.push_back(file);
  for (const std::string& folder : name.folders) paths.push_back(folder + '/' + file);
  return paths;
}

std::string path_of(void* handle) {
  link_map* loaded = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &loaded) == 0 && loaded != nullptr ? loaded->l_name : "";
}

std::string remedy(const SharedLibraryName& name) {
  return fmt::format("install {}, or add the folder that holds {} to LD_LIBRARY_PATH", name.package,
                     file_of(name, name.major));
}

int mode(const SharedLibraryName& name) {
  return RTLD_NOW | (name.global ? RTLD_GLOBAL : RTLD_LOCAL);
}

// Path of the library of that major version, or empty. Loads it for a moment.
std::string find_major(const SharedLibraryName& name, int major) {
  for (const std::string& path : places(name, major)) {
    void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) continue;
    std::string found = path_of(handle);
    dlclose(handle);
    return found.empty() ? path : found;
  }
  return {};
}

}  // namespace

SharedLibrary::SharedLibrary(const SharedLibraryName& name) : product_(name.product), package_(name.package) {
  std::string reason;  // a file that exists and does not load says more than one that does not exist
  for (const std::string& path : places(name, name.major)) {
    handle_ = dlopen(path.c_str(), mode(name));
    if (handle_ != nullptr) return;
    std::error_code ignored;
    if (const char* error = dlerror(); reason.empty() || std::filesystem::exists(path, ignored)) reason = error;
  }
  for (int distance = 1; distance <= kMajorDistance; ++distance)
    for (const int major : {name.major - distance, name.major + distance}) {
      const std::string found = major > 0 ? find_major(name, major) : std::string();
      if (!found.empty()) QUENCH_FAIL(ErrorCode::unsupported, "{}", other_major_message(name, found, major));
    }
  QUENCH_FAIL(ErrorCode::unsupported, "{} was not found ({}); {}", name.product, reason, remedy(name));
}

SharedLibrary::SharedLibrary(const SharedLibraryName& name, const std::string& path)
    : product_(name.product), package_(name.package), handle_(dlopen(path.c_str(), mode(name))) {
  if (handle_ == nullptr)
    QUENCH_FAIL(ErrorCode::unsupported, "{} was not loaded ({}); {}", name.product, dlerror(), remedy(name));
}

void* SharedLibrary::symbol(const char* name) const {
  void* address = dlsym(handle_, name);
  QUENCH_CHECK_AS(ErrorCode::unsupported, address != nullptr,
                  "{} ({}) has no function {}: it is not of this program's version; install {}", product_, path(), name,
                  package_);
  return address;
}

std::string SharedLibrary::path() const {
  return path_of(handle_);
}

std::string other_major_message(const SharedLibraryName& name, std::string_view found, int found_major) {
  return fmt::format("{}: found {} of major version {}, this program needs {} ({}); {}", name.product, found,
                     found_major, name.major, file_of(name, name.major), remedy(name));
}

}  // namespace quench
