#include "nn/rope_table.h"

#include <cmath>
#include <numbers>

namespace quench::nn {

std::vector<float> rope_inverse_frequencies(const ModelConfig& config) {
  const RopeScaling& rope = config.rope;
  std::vector<float> frequencies(static_cast<std::size_t>(config.head_dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    double f = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
    if (rope.type == RopeScaling::Type::linear) {
      f /= rope.factor;
    } else if (rope.type == RopeScaling::Type::llama3) {
      const double wavelength = 2 * std::numbers::pi / f;
      const auto original = static_cast<double>(rope.original_max_position_embeddings);
      if (wavelength > original / rope.low_freq_factor) {
        f /= rope.factor;
      } else if (wavelength >= original / rope.high_freq_factor) {
        const double smooth =
            (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
        f = (1 - smooth) * f / rope.factor + smooth * f;
      }
    }
    frequencies[i] = static_cast<float>(f);
  }
  return frequencies;
}

RopeTable make_rope_table(const ModelConfig& config, std::int64_t positions, Device device) {
  const MemoryScope scope(MemoryCategory::other);
  const std::vector<float> frequencies = rope_inverse_frequencies(config);
  const auto half = static_cast<std::int64_t>(frequencies.size());
  if (device.is_meta())
    return {Tensor::empty({positions, half}, DType::f32, device), Tensor::empty({positions, half}, DType::f32, device)};
  const Tensor cos = Tensor::empty({positions, half}, DType::f32);
  const Tensor sin = Tensor::empty({positions, half}, DType::f32);
  float* c = cos.data<float>();
  float* s = sin.data<float>();
#pragma omp parallel for schedule(static) if (positions * half > 16384)
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p) * frequencies[static_cast<std::size_t>(i)];
      c[p * half + i] = std::cos(angle);
      s[p * half + i] = std::sin(angle);
    }
  }
  return {cos.to(device), sin.to(device)};
}

}  // namespace quench::nn
