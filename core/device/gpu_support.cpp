#include "core/device/gpu_support.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>

namespace quench {
namespace {

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string dotted(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

}  // namespace

std::string old_driver_message(int driver, int needed) {
  return fmt::format(
      "the NVIDIA driver supports CUDA {}, this build needs {}; update the driver, or build with a CUDA {} toolkit",
      cuda_version(driver), cuda_version(needed), cuda_version(driver));
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
