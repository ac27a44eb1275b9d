#include "core/cuda/launch.h"

#include <algorithm>

namespace quench::cuda {
namespace {

Device device_of(std::initializer_list<const Tensor*> operands) {
  for (const Tensor* tensor : operands)
    if (tensor->defined()) return tensor->device();
  return {DeviceType::cuda, 0};
}

int attribute(Device device, cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device.index), "cudaDeviceGetAttribute", device);
  return value;
}

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

int multiprocessor_count(Device device) {
  static const int count = attribute(device, cudaDevAttrMultiProcessorCount);
  return count;
}

int max_shared_bytes(Device device) {
  static const int bytes = attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return bytes;
}

unsigned strided_grid(Device device, std::int64_t n, std::int64_t per_block, int blocks_per_multiprocessor, int waves) {
  const std::int64_t blocks = (n + per_block - 1) / per_block;
  const std::int64_t most = std::int64_t{multiprocessor_count(device)} * blocks_per_multiprocessor * waves;
  return static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, most));
}

}  // namespace quench::cuda
