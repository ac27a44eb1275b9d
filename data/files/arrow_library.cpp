#include "data/files/arrow_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "core/device/own_folder.h"

namespace quench {
namespace {

struct ArrowLibrary {
  const QuenchArrowFunctions* functions = nullptr;
  std::string missing;
};

std::vector<std::filesystem::path> module_candidates() {
  if (const char* chosen = std::getenv("QUENCH_ARROW_LIBRARY"); chosen != nullptr && *chosen != '\0') return {chosen};
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return {folder / "libquench_arrow.so", folder / "../lib/quench/libquench_arrow.so",
          own_folder() / "libquench_arrow.so"};
}

ArrowLibrary open_arrow_library() {
  ArrowLibrary library;
  for (const std::filesystem::path& path : module_candidates()) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      if (library.missing.empty()) library.missing = fmt::format("there is no {}", path.string());
      continue;
    }
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: its functions may run at exit
    if (handle == nullptr) {
      library.missing = dlerror();
      continue;
    }
    const auto entry = reinterpret_cast<QuenchArrowEntry>(dlsym(handle, QUENCH_ARROW_ENTRY));
    const QuenchArrowFunctions* functions = entry != nullptr ? entry() : nullptr;
    if (functions != nullptr && functions->interface == QUENCH_ARROW_INTERFACE) return {functions, {}};
    library.missing = fmt::format("{} belongs to another version of the program", path.string());
  }
  return library;
}

}  // namespace

const QuenchArrowFunctions* arrow_functions(std::string& missing) {
  static const ArrowLibrary library = open_arrow_library();
  missing = library.missing;
  return library.functions;
}

}  // namespace quench
