#pragma once
// Operands and entry points of the GPU kernel benchmarks.

#include <random>
#include <vector>

#include "core/tensor/tensor.h"

namespace quench::bench {

inline constexpr Device kGpu{DeviceType::cuda, 0};

void measure_attention();
void measure_fused_kernels();
void measure_float8_products();
void measure_optimizer();
void measure_casts();
void measure_experts();
void measure_generation();
void measure_kv_caches();
void measure_low_rank();

// Random CPU tensors from a seed.
class Generator {
 public:
  explicit Generator(std::uint32_t seed) : engine_(seed) {}
  std::int64_t below(std::int64_t bound) { return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(engine_); }

  Tensor normal(const Shape& shape, DType dtype, double scale = 1.0) {
    std::normal_distribution<float> distribution(0.0f, static_cast<float>(scale));
    const Tensor result = Tensor::empty(shape, dtype);
    dispatch<float, bfloat16>(dtype, "normal", [&]<class T>() {
      for (std::int64_t i = 0; i < result.numel(); ++i) result.data<T>()[i] = T(distribution(engine_));
    });
    return result;
  }
  Tensor integers(std::int64_t n, std::int64_t bound) {
    const Tensor result = Tensor::empty({n}, DType::i32);
    for (std::int64_t i = 0; i < n; ++i) result.data<std::int32_t>()[i] = static_cast<std::int32_t>(below(bound));
    return result;
  }

 private:
  std::mt19937 engine_;
};

inline Tensor on_gpu(const Tensor& t) {
  return t.to(kGpu);
}

}  // namespace quench::bench
