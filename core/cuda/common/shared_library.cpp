#include "core/cuda/common/shared_library.h"

#include <dlfcn.h>

#include "core/system/check.h"

namespace quench::cuda {

SharedLibrary::SharedLibrary(std::string_view product, std::initializer_list<const char*> names) : product_(product) {
  std::string reason;
  for (const char* name : names) {
    for (const std::string prefix : {"", "/usr/local/cuda/lib64/"}) {
      handle_ = dlopen((prefix + name).c_str(), RTLD_NOW | RTLD_GLOBAL);
      if (handle_ != nullptr) return;
      if (reason.empty()) reason = dlerror();
    }
  }
  QUENCH_FAIL(ErrorCode::unsupported,
              "{} was not found ({}); install the CUDA 13 libraries, or add the folder that holds {} to "
              "LD_LIBRARY_PATH",
              product, reason, *names.begin());
}

void* SharedLibrary::symbol(const char* name) const {
  void* address = dlsym(handle_, name);
  QUENCH_CHECK_AS(ErrorCode::unsupported, address != nullptr,
                  "{} has no function {}: it is older than this program; install the CUDA 13 libraries", product_,
                  name);
  return address;
}

}  // namespace quench::cuda
