// CUDA versions for `quench --version`.

#include "core/device/library_versions.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <fstream>
#include <string>

#include "core/cuda/gemm/cublaslt_library.h"
#include "core/system/check.h"
#ifdef QUENCH_HAVE_CUDNN
#include "core/cuda/cudnn/library.h"
#endif

namespace quench::cuda {
namespace {

// 13000 -> "13.0".
std::string cuda_version(int number) {
  return number == 0 ? "(none)" : fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::string dotted(std::size_t number) {
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

std::string runtime() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? cuda_version(version) : "(unknown)";
}

// Version of the kernel module: "580.65.06", the first word of digits and points.
std::string kernel_module() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;)
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  return "(none)";
}

// Newest CUDA version supported by the driver.
std::string driver() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? cuda_version(version) : "(none)";
}

std::string cublaslt_version() {
  try {
    return dotted(cublaslt().get_version());
  } catch (const Error&) {
    return "(not found)";
  }
}

std::string cublaslt_missing() {
  try {
    (void)cublaslt();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

std::string missing_cudnn() {
#ifdef QUENCH_HAVE_CUDNN
  return cudnn_missing();
#else
  return "this build has no cuDNN";
#endif
}

std::string cudnn_version() {
#ifdef QUENCH_HAVE_CUDNN
  return cudnn_missing().empty() ? dotted(cudnnGetVersion()) : "(not found)";
#else
  return "(not in this build)";
#endif
}

[[maybe_unused]] const bool registered[] = {
    register_library("CUDA runtime", runtime, DeviceType::cuda),
    register_library("CUDA driver", driver, DeviceType::cuda),
    register_library("NVIDIA driver", kernel_module, DeviceType::cuda),
    register_library("cuBLASLt", cublaslt_version, DeviceType::cuda, {"libcublasLt.so", cublaslt_missing}),
    register_library("cuDNN", cudnn_version, DeviceType::cuda, {"libcudnn.so", missing_cudnn}),
};

}  // namespace
}  // namespace quench::cuda
