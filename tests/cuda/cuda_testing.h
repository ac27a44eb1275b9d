#pragma once
// Operands on the GPU for tests of CUDA kernels against the CPU's. They fail, not skip, where there is no GPU: ctest's
// label gpu keeps them from running there.

#include "tests/core/ops/op_testing.h"
#include "tests/cuda/gpu.h"

namespace quench::testing {

// A copy of a CPU tensor with the same strides and the same offset from an aligned address, gaps included.
inline Tensor on_gpu(const Tensor& t) {
  if (!t.defined()) return {};
  const auto width = static_cast<std::size_t>(bit_width(t.dtype())) / 8;
  const auto elements = static_cast<std::int64_t>(t.storage()->nbytes() / width);
  const Tensor whole = Tensor::from_host(t.storage()->data(), {elements}, t.dtype()).to(kGpu);
  const auto offset = static_cast<const std::byte*>(t.raw_data()) - static_cast<const std::byte*>(t.storage()->data());
  return whole.strided(t.shape(), t.strides(), static_cast<std::int64_t>(offset) / static_cast<std::int64_t>(width));
}

// The way back. Waits for the GPU.
inline Tensor on_cpu(const Tensor& t) {
  if (!t.defined()) return {};
  const auto width = static_cast<std::size_t>(bit_width(t.dtype())) / 8;
  const auto elements = static_cast<std::int64_t>(t.storage()->nbytes() / width);
  const Tensor whole = Tensor::empty({elements}, t.dtype());
  Stream stream = current_stream(t.device());
  Backend& gpu = backend(DeviceType::cuda);
  gpu.copy(whole.raw_data(), Device{}, t.storage()->data(), t.device(), t.storage()->nbytes(), stream);
  gpu.synchronize(stream);
  const auto offset = static_cast<const std::byte*>(t.raw_data()) - static_cast<const std::byte*>(t.storage()->data());
  return whole.strided(t.shape(), t.strides(), static_cast<std::int64_t>(offset) / static_cast<std::int64_t>(width));
}

}  // namespace quench::testing
