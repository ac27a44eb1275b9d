#include "core/cuda/common/launch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "core/cuda/common/kernel_image.h"

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

  template <class Read>
  int get(Device device, const Read& read) {
    std::atomic<int>& known = values.at(static_cast<std::size_t>(device.index));
    int value = known.load(std::memory_order_relaxed);
    if (value > 0) return value;
    value = read();
    known.store(value, std::memory_order_relaxed);
    return value;
  }
};

int attribute(Device device, cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device.index), "cudaDeviceGetAttribute", device);
  return value;
}

constexpr int kNoLimit = 1000;

// QUENCH_CUDA_CAPABILITY.
int capability_limit() {
  static const int limit = [] {
    const char* text = std::getenv("QUENCH_CUDA_CAPABILITY");
    if (text == nullptr || *text == '\0') return kNoLimit;
    int major = 0, minor = 0, read = 0;
    const bool valid = std::sscanf(text, "%d.%d%n", &major, &minor, &read) == 2 && text[read] == '\0';
    QUENCH_CHECK(valid && major >= 8 && minor >= 0 && minor < 10,
                 "QUENCH_CUDA_CAPABILITY={}: expected a compute capability from 8.0 on, as 8.9", text);
    return 10 * major + minor;
  }();
  return limit;
}

// Opt-in shared memory per CTA in bytes, of compute capability `capability`.
int shared_bytes_of(int capability) {
  switch (capability) {
    case 80:
    case 87: return 163 << 10;
    case 86:
    case 89: return kLeastSharedBytes;
    default: return capability >= 120 ? kLeastSharedBytes : 227 << 10;
  }
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

void OpLaunch::opt_in(const void* kernel, std::size_t shared_bytes) const {
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, std::size_t> limits;  // most bytes of dynamic shared memory
  const std::lock_guard lock(mutex);
  auto [found, is_new] = limits.try_emplace({kernel, device().index}, 0);
  if (is_new) {
    cudaFuncAttributes attributes{};
    cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
    const auto most = static_cast<std::size_t>(max_shared_bytes(device()));
    const std::size_t limit = most - std::min(most, attributes.sharedSizeBytes);
    if (status == cudaSuccess)
      status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(limit));
    if (status != cudaSuccess) limits.erase(found);
    check(status);
    found->second = limit;
  }
  QUENCH_CHECK_AS(ErrorCode::unsupported, shared_bytes <= found->second,
                  "op {}: a kernel takes {} bytes of shared memory per CTA, the GPU allows it {}", op_, shared_bytes,
                  found->second);
}

int sm_count(Device device) {
  static PerDevice counts;
  return counts.get(device, [&] { return attribute(device, cudaDevAttrMultiProcessorCount); });
}

int max_shared_bytes(Device device) {
  static PerDevice bytes;
  return bytes.get(device, [&] {
    const int most = attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin);
    return capability_limit() == kNoLimit ? most : std::min(most, shared_bytes_of(compute_capability(device)));
  });
}

int compute_capability(Device device) {
  static PerDevice capabilities;
  return capabilities.get(device, [&] {
    return std::min(capability_limit(), 10 * attribute(device, cudaDevAttrComputeCapabilityMajor) +
                                            attribute(device, cudaDevAttrComputeCapabilityMinor));
  });
}

int code_capability(Device device) {
  static PerDevice capabilities;
  return capabilities.get(device, [&] {
    const KernelImage image = probe_kernels(device.index);
    check(image.status, "the kernels of this build", device);
    return std::min(compute_capability(device), image.capability);
  });
}

unsigned strided_grid(Device device, std::int64_t n, std::int64_t per_block, int blocks_per_multiprocessor, int waves) {
  const std::int64_t blocks = (n + per_block - 1) / per_block;
  const std::int64_t most = std::int64_t{sm_count(device)} * blocks_per_multiprocessor * waves;
  return static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, most));
}

}  // namespace quench::cuda
