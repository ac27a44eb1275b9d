#pragma once
// Messages and decisions about GPUs that cannot run, or not together. Pure functions.

#include <span>
#include <string>

#include "core/device/device.h"

namespace quench {

// Lowest capability of every kernel: Ampere.
inline constexpr int kLeastCapability = 80;

// CUDA versions as in CUDART_VERSION: 13000 for 13.0. `toolkit`: of the build, of a later major version than `driver`.
[[nodiscard]] std::string old_driver_message(int driver, int toolkit);
// Message of a GPU without kernels in this build, `capability` 75 for 7.5.
[[nodiscard]] std::string no_kernels_message(int index, std::string_view name, int capability);

struct RankGpu {
  std::string name;
  // As lowered by QUENCH_CUDA_CAPABILITY: it chooses the GEMM paths, and so the roundings.
  ComputeCapability capability;
};

// "80 80 NVIDIA A100": for an exchange between ranks.
[[nodiscard]] std::string encode(const RankGpu& gpu);
// Throws invalid_argument for other text.
[[nodiscard]] RankGpu decode_gpu(std::string_view text);

// GPUs of all ranks, by rank. Throws unsupported if their compute capabilities differ, naming the GPUs and the
// QUENCH_CUDA_CAPABILITY that makes them equal. GPUs of different names and equal capabilities pass.
void require_equal_capabilities(std::span<const RankGpu> gpus);

}  // namespace quench
