#pragma once
// Weights of squared errors, and rounding to integer codes, in the form that quantizers of blocks share.

namespace quench {

// Factors of N squared errors with mean 1: the importance, never quite 0 so that all codes are determined; 1 without
// importance, or where all of it is 0.
template <int N>
void error_weights(const float* importance, float* weights) {
  constexpr double kLeast = 1e-6;
  double sum = 0;
  for (int i = 0; importance != nullptr && i < N; ++i) sum += static_cast<double>(importance[i]);
  const double factor = sum > 0 ? N / sum : 0.0;
  for (int i = 0; i < N; ++i)
    weights[i] =
        factor > 0 ? static_cast<float>(static_cast<double>(importance[i]) * factor * (1 - kLeast) + kLeast) : 1.0f;
}

// Nearest integer of [low, high], ties to even; low for NaN. Of at most 2^22.
[[nodiscard]] inline float nearest_code(float x, float low, float high) noexcept {
  constexpr float kIntegers = 12582912.0f;  // 1.5 * 2^23: its last bit is 1
  float bounded = x > low ? x : low;
  bounded = bounded < high ? bounded : high;
  return (bounded + kIntegers) - kIntegers;
}

}  // namespace quench
