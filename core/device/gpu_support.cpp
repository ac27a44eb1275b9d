#include "core/device/gpu_support.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>

namespace quench {
namespace {

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Oldest driver of each major version of CUDA that this program can be built with; all minor versions run on it.
struct CudaDriver {
  int cuda;
  std::string_view driver;
};
constexpr std::array kCudaDrivers{CudaDriver{12, "525.60.13"}, CudaDriver{13, "580"}};

std::string dotted(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

}  // namespace

std::string old_driver_message(int driver, int toolkit) {
  const int major = toolkit / 1000, supported = driver / 1000;
  const auto needed = std::ranges::find(kCudaDrivers, major, &CudaDriver::cuda);
  std::string text =
      fmt::format("the NVIDIA driver supports CUDA {}, this build needs {}.0", cuda_version(driver), major);
  if (needed != kCudaDrivers.end()) text += fmt::format(" (driver {} or newer)", needed->driver);
  text += "; update the driver";
  if (supported < major && std::ranges::find(kCudaDrivers, supported, &CudaDriver::cuda) != kCudaDrivers.end())
    text += fmt::format(", or build with a CUDA {} toolkit", supported);
  return text;
}

std::string no_kernels_message(int index, std::string_view name, int capability) {
  const std::string gpu = fmt::format("device {} ({}) has compute capability {}", index, name, dotted(capability));
  if (capability < kLeastCapability)
    return fmt::format("{}; {} or later (Ampere) is needed, or --device cpu", gpu, dotted(kLeastCapability));
  return fmt::format("{}, for which this build has no kernels; build with -DCMAKE_CUDA_ARCHITECTURES={}", gpu,
                     capability);
}

std::string encode(const RankGpu& gpu) {
  return fmt::format("{} {} {}", gpu.capability.device, gpu.capability.code, gpu.name);
}

RankGpu decode_gpu(std::string_view text) {
  RankGpu gpu;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  for (int* number : {&gpu.capability.device, &gpu.capability.code}) {
    const auto [next, error] = std::from_chars(at, end, *number);
    QUENCH_CHECK(error == std::errc() && next < end && *next == ' ', "'{}' does not describe a GPU", text);
    at = next + 1;
  }
  gpu.name = std::string(at, end);
  return gpu;
}

void require_equal_capabilities(std::span<const RankGpu> gpus) {
  const auto key = [](const RankGpu& gpu) { return std::pair(gpu.capability.device, gpu.capability.code); };
  std::map<std::pair<int, int>, std::size_t> first;  // rank
  int least = gpus.empty() ? 0 : gpus.front().capability.code;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    first.try_emplace(key(gpus[rank]), rank);
    least = std::min(least, gpus[rank].capability.code);
  }
  if (first.size() <= 1) return;
  std::string listed;
  for (const auto& [capability, rank] : first)
    listed += fmt::format(
        "{}rank {} has {} ({}{})", listed.empty() ? "" : ", ", rank, gpus[rank].name, dotted(capability.first),
        capability.first == capability.second ? "" : fmt::format(" with kernels of {}", dotted(capability.second)));
  QUENCH_FAIL(ErrorCode::unsupported,
              "the GPUs of this run differ in compute capability: {}; ranks would round differently. Set "
              "QUENCH_CUDA_CAPABILITY={} on all ranks for the common kernels, or use equal GPUs",
              listed, dotted(least));
}

}  // namespace quench
