#pragma once
// Kernel launches on the current stream; errors name op and operands. For .cu files.

#include <cuda_runtime.h>

#include <initializer_list>
#include <utility>

#include "core/cuda/common/cuda_error.h"
#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench::cuda {

[[nodiscard]] int sm_count(Device device);
// Per CTA, static and dynamic: opt-in limit of the device, at least kLeastSharedBytes.
[[nodiscard]] int max_shared_bytes(Device device);
// Limit of compute capabilities 8.6, 8.9 and 12.x, the least of those supported.
inline constexpr int kLeastSharedBytes = 99 << 10;

// Capability of the device, for libraries: 90 for 9.0. QUENCH_CUDA_CAPABILITY ("8.0", "8.9") lowers it, shared memory
// included, so that a device takes the paths of an older one; throws invalid_argument for other text.
[[nodiscard]] int compute_capability(Device device);
// Capability of the code that the device runs, for own kernels: at most compute_capability().
[[nodiscard]] int code_capability(Device device);

// Holds references.
class OpLaunch {
 public:
  OpLaunch(std::string_view op, std::initializer_list<const Tensor*> operands);

  // Opts in to dynamic shared memory above 48 KiB.
  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                  Arguments&&... arguments) const {
    run(kernel, grid, block, shared_bytes, false, 1, std::forward<Arguments>(arguments)...);
  }

  // PDL launch, for kernels that call pdl_wait() (pdl.cuh); ordinary above kFewRows output `rows`.
  template <class... Parameters, class... Arguments>
  void early(std::int64_t rows, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
             Arguments&&... arguments) const {
    early_clusters(rows, 1, kernel, grid, block, shared_bytes, std::forward<Arguments>(arguments)...);
  }
  // In clusters of so many CTAs along x.
  template <class... Parameters, class... Arguments>
  void early_clusters(std::int64_t rows, unsigned cluster, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                      std::size_t shared_bytes, Arguments&&... arguments) const {
    run(kernel, grid, block, shared_bytes, rows <= kFewRows && code_capability(device()) >= kPdlCapability, cluster,
        std::forward<Arguments>(arguments)...);
  }

  void check(cudaError_t status) const {
    if (status != cudaSuccess) [[unlikely]]
      fail(status);
  }
  [[nodiscard]] cudaStream_t stream() const noexcept { return native(stream_); }
  [[nodiscard]] Device device() const noexcept { return stream_.device; }

 private:
  // Below the 48 KiB default, which includes static shared memory.
  static constexpr std::size_t kDefaultSharedBytes = std::size_t{32} << 10;
  static constexpr std::int64_t kFewRows = 64;
  static constexpr int kPdlCapability = 90;

  template <class... Parameters, class... Arguments>
  void run(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, bool early, unsigned cluster,
           Arguments&&... arguments) const {
    if (shared_bytes > kDefaultSharedBytes) opt_in(reinterpret_cast<const void*>(kernel), shared_bytes);
    std::array<cudaLaunchAttribute, 2> attributes{};
    unsigned count = 0;
    if (early) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
      attributes[count].id = cudaLaunchAttributeClusterDimension;
      attributes[count++].val.clusterDim = {cluster, 1, 1};
    }
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream();
    config.attrs = attributes.data();
    config.numAttrs = count;
    check(cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...));
  }

  [[noreturn]] void fail(cudaError_t status) const;
  // Once per kernel and device, for all sizes up to the limit. Throws unsupported above max_shared_bytes().
  void opt_in(const void* kernel, std::size_t shared_bytes) const;

  std::string_view op_;
  Stream stream_;
  DeviceGuard guard_;
  std::array<const Tensor*, 12> operands_{};
  std::size_t operand_count_ = 0;
};

// Grid-stride launch, `per_block` items per CTA: at most `waves` full waves.
[[nodiscard]] unsigned strided_grid(Device device, std::int64_t n, std::int64_t per_block,
                                    int blocks_per_multiprocessor = 8, int waves = 1);

}  // namespace quench::cuda

#define QUENCH_CUDA_KERNEL(slot, function) \
  [[maybe_unused]] const bool function##_cuda_registered = (slot).fill(::quench::DeviceType::cuda, &(function))
