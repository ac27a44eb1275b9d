#pragma once
// Kernel launches on the calling thread's current stream, with errors that name the op and its operands.
// For .cu files.

#include <cuda_runtime.h>

#include <initializer_list>
#include <utility>

#include "core/cuda/common/cuda_error.h"
#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench::cuda {

// What the launches of one op share: device, stream, and the operands for messages. Keeps references: use it within
// the op's function.
class OpLaunch {
 public:
  OpLaunch(std::string_view op, std::initializer_list<const Tensor*> operands);

  // Launches and checks. Dynamic shared memory above 48 KiB is allowed for.
  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                  Arguments&&... arguments) const {
    run(kernel, grid, block, shared_bytes, false, std::forward<Arguments>(arguments)...);
  }

  // Launch with PDL, for kernels that call pdl_wait() (core/cuda/common/pdl.cuh). With many output `rows` the launch
  // latency does not matter and the launch is an ordinary one.
  template <class... Parameters, class... Arguments>
  void early(std::int64_t rows, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
             Arguments&&... arguments) const {
    run(kernel, grid, block, shared_bytes, kPdl && rows <= kFewRows, std::forward<Arguments>(arguments)...);
  }

  void check(cudaError_t status) const {
    if (status != cudaSuccess) [[unlikely]]
      fail(status);
  }
  [[nodiscard]] cudaStream_t stream() const noexcept { return native(stream_); }
  [[nodiscard]] Device device() const noexcept { return stream_.device; }

 private:
  // A block gets 48 KiB without asking for more, what the kernel declares statically included: no kernel of ours
  // declares more than the difference.
  static constexpr std::size_t kDefaultSharedBytes = std::size_t{32} << 10;
  static constexpr std::int64_t kFewRows = 64;
#if defined(QUENCH_CUDA_PDL)
  static constexpr bool kPdl = true;
#else
  static constexpr bool kPdl = false;
#endif

  template <class... Parameters, class... Arguments>
  void run(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, bool early,
           Arguments&&... arguments) const {
    if (shared_bytes > kDefaultSharedBytes)
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
    cudaLaunchAttribute start{};
    start.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    start.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream();
    config.attrs = &start;
    config.numAttrs = early ? 1 : 0;
    check(cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...));
  }

  [[noreturn]] void fail(cudaError_t status) const;

  std::string_view op_;
  Stream stream_;
  DeviceGuard guard_;
  std::array<const Tensor*, 12> operands_{};
  std::size_t operand_count_ = 0;
};

// Multiprocessors of a device, and the shared memory in bytes that one block may ask for.
[[nodiscard]] int sm_count(Device device);
[[nodiscard]] int max_shared_bytes(Device device);

// 90 for compute capability 9.0.
[[nodiscard]] int compute_capability(Device device);

// Grid for a loop over n items, `per_block` each, that strides by the grid: at most `waves` full waves of
// `blocks_per_multiprocessor` resident blocks.
[[nodiscard]] unsigned strided_grid(Device device, std::int64_t n, std::int64_t per_block,
                                    int blocks_per_multiprocessor = 8, int waves = 1);

}  // namespace quench::cuda

// Registers a CUDA kernel launcher, `void function(const Args&)`, in its slot.
#define QUENCH_CUDA_KERNEL(slot, function) \
  [[maybe_unused]] const bool function##_cuda_registered = (slot).fill(::quench::DeviceType::cuda, &(function))
