// oneDNN version for `quench --version`.

#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.h>

#include "core/device/library_versions.h"

namespace quench {
namespace {

[[maybe_unused]] const bool version_registered = register_library("oneDNN", []() -> std::string {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
});

}  // namespace
}  // namespace quench
