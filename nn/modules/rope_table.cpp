#include "nn/modules/rope_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "nn/modules/rope_scale.h"

namespace quench::nn {

namespace {

double llama3_frequency(double f, const RopeScaling& rope) {
  const double wavelength = 2 * std::numbers::pi / f;
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  if (wavelength > original / rope.low_freq_factor) return f / rope.factor;
  if (wavelength < original / rope.high_freq_factor || rope.high_freq_factor == rope.low_freq_factor) return f;
  const double smooth = (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * f / rope.factor + smooth * f;
}

// Index range in which yarn blends: beta_fast to beta_slow rotations over the original length.
std::pair<double, double> yarn_range(const RopeScaling& rope, double dim) {
  const auto index = [&](double turns) {
    const auto original = static_cast<double>(rope.original_max_position_embeddings);
    return dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
  };
  double low = index(rope.beta_fast), high = index(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  return {low, low == high ? high + 0.001 : high};
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double rope_attention_factor(const RopeScaling& rope) {
  if (rope.type == RopeScaling::Type::longrope) {
    if (rope.attention_factor) return *rope.attention_factor;
    const auto original = static_cast<double>(rope.original_max_position_embeddings);
    return rope.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(rope.factor) / std::log(original));
  }
  if (rope.type != RopeScaling::Type::yarn) return 1.0;
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale && rope.mscale_all_dim)
    return yarn_mscale(rope.factor, *rope.mscale) / yarn_mscale(rope.factor, *rope.mscale_all_dim);
  return yarn_mscale(rope.factor, 1.0);
}

double rope_score_factor(const RopeScaling& rope) {
  if (rope.type != RopeScaling::Type::yarn || !rope.mscale_all_dim) return 1.0;
  const double mscale = yarn_mscale(rope.factor, *rope.mscale_all_dim);
  return mscale * mscale;
}

std::int64_t rope_longest_common(const RotarySpec& rotary) {
  switch (rotary.scaling.type) {
    case RopeScaling::Type::longrope: return rotary.scaling.original_max_position_embeddings;
    case RopeScaling::Type::dynamic: return rotary.max_positions;
    default: return std::numeric_limits<std::int64_t>::max();
  }
}

std::int64_t rope_effective_length(const RotarySpec& rotary, std::int64_t sequence_length) {
  const std::int64_t common = rope_longest_common(rotary);
  switch (rotary.scaling.type) {
    case RopeScaling::Type::longrope: return std::min(std::max(sequence_length, common), common + 1);
    case RopeScaling::Type::dynamic: return std::max(sequence_length, common);
    default: return 0;
  }
}

std::vector<float> rope_inverse_frequencies(const RotarySpec& rotary, std::int64_t sequence_length) {
  using enum RopeScaling::Type;
  const RopeScaling& rope = rotary.scaling;
  const auto dim = static_cast<double>(rotary.dim);
  double theta = rope.theta;
  if (rope.type == dynamic && dim > 2) {
    const double length =
        static_cast<double>(rope_effective_length(rotary, sequence_length)) / static_cast<double>(rotary.max_positions);
    theta *= std::pow(rope.factor * length - (rope.factor - 1), dim / (dim - 2));
  }
  const auto [low, high] = rope.type == yarn ? yarn_range(rope, dim) : std::pair(0.0, 1.0);
  const bool is_long = rope.type == longrope && sequence_length > rope.original_max_position_embeddings;
  std::vector<float> frequencies(static_cast<std::size_t>(rotary.dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    double f = std::pow(theta, -2.0 * static_cast<double>(i) / dim);
    if (rope.type == linear) f /= rope.factor;
    if (rope.type == longrope) f /= (is_long ? rope.long_factors : rope.short_factors)[i];
    if (rope.type == llama3) f = llama3_frequency(f, rope);
    if (rope.type == yarn) {
      const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      f = divided * f / rope.factor + (1 - divided) * f;
    }
    frequencies[i] = static_cast<float>(f);
  }
  return frequencies;
}

RopeTable make_rope_table(const RotarySpec& rotary, std::int64_t positions, std::int64_t sequence_length,
                          Device device) {
  const MemoryScope scope(MemoryCategory::other);
  const std::vector<float> frequencies = rope_inverse_frequencies(rotary, sequence_length);
  const auto attention_factor = static_cast<float>(rope_attention_factor(rotary.scaling));
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
      c[p * half + i] = std::cos(angle) * attention_factor;
      s[p * half + i] = std::sin(angle) * attention_factor;
    }
  }
  return {cos.to(device), sin.to(device)};
}

RopeTable make_query_scales(const QueryTemperature& temperature, std::int64_t head_dim, std::int64_t positions,
                            Device device) {
  const auto step = static_cast<float>(temperature.step), factor = static_cast<float>(temperature.scale);
  if (static_cast<float>(positions) < step) return {};
  const MemoryScope scope(MemoryCategory::other);
  const std::int64_t half = head_dim / 2;
  if (device.is_meta())
    return {Tensor::empty({positions, half}, DType::f32, device), Tensor::empty({positions, half}, DType::f32, device)};
  const Tensor cos = Tensor::empty({positions, half}, DType::f32);
  for (std::int64_t p = 0; p < positions; ++p) {
    const float scale = std::log1p(std::floor((static_cast<float>(p) + 1.0f) / step)) * factor + 1.0f;
    std::fill_n(cos.data<float>() + p * half, half, scale);
  }
  return {cos.to(device), Tensor::zeros({positions, half}, DType::f32, device)};
}

}  // namespace quench::nn
