#include "core/cuda/common/launch.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace quench::cuda {
namespace {

Device device_of(std::initializer_list<const Tensor*> operands) {
  for (const Tensor* tensor : operands)
    if (tensor->defined()) return tensor->device();
  return {DeviceType::cuda, 0};
}

// Cached once positive.
struct PerDevice {
  std::array<std::atomic<int>, 16> values{};

  int get(Device device, cudaDeviceAttr which) {
    std::atomic<int>& known = values.at(static_cast<std::size_t>(device.index));
    int value = known.load(std::memory_order_relaxed);
    if (value > 0) return value;
    check(cudaDeviceGetAttribute(&value, which, device.index), "cudaDeviceGetAttribute", device);
    known.store(value, std::memory_order_relaxed);
    return value;
  }
};

}  // namespace

OpLaunch::OpLaunch(std::string_view op, std::initializer_list<const Tensor*> operands)
    : op_(op), stream_(current_stream(device_of(operands))), guard_(stream_.device) {
  for (const Tensor* tensor : operands)
    if (tensor->defined() && operand_count_ < operands_.size()) operands_[operand_count_++] = tensor;
}

void OpLaunch::fail(cudaError_t status) const {
  std::string shapes;
  for (std::size_t i = 0; i < operand_count_; ++i) shapes += (i > 0 ? ", " : "") + operands_[i]->describe();
  cuda::check(status, fmt::format("op {} of {}", op_, shapes), stream_);
  QUENCH_FAIL(ErrorCode::failed, "op {} failed", op_);
}

int sm_count(Device device) {
  static PerDevice counts;
  return counts.get(device, cudaDevAttrMultiProcessorCount);
}

int max_shared_bytes(Device device) {
  static PerDevice bytes;
  return bytes.get(device, cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

int compute_capability(Device device) {
  static PerDevice majors, minors;
  return 10 * majors.get(device, cudaDevAttrComputeCapabilityMajor) +
         minors.get(device, cudaDevAttrComputeCapabilityMinor);
}

unsigned strided_grid(Device device, std::int64_t n, std::int64_t per_block, int blocks_per_multiprocessor, int waves) {
  const std::int64_t blocks = (n + per_block - 1) / per_block;
  const std::int64_t most = std::int64_t{sm_count(device)} * blocks_per_multiprocessor * waves;
  return static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, most));
}

}  // namespace quench::cuda
