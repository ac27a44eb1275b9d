#include "export/methods/smoothquant.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quench {

std::optional<Tensor> smoothquant_scales(const ScaleChoiceArgs& args) {
  if (!any_quantized(args.weights) || args.inputs.rows() == 0) return std::nullopt;
  const std::int64_t columns = args.inputs.columns();
  const Tensor inputs = args.inputs.largest().clone(), weights = Tensor::zeros({columns}, DType::f32);
  float* largest = weights.data<float>();
  for (const ScaledWeight& one : args.weights) {
    const float* w = one.weight.data<float>();
    for (std::int64_t i = 0; i < one.weight.numel(); ++i)
      largest[i % columns] = std::max(largest[i % columns], std::abs(w[i]));
  }
  share_columns(inputs, args.shared);
  share_columns(weights, args.shared);
  constexpr float kTiny = std::numeric_limits<float>::epsilon();
  const auto a = static_cast<float>(args.smoothing);
  const Tensor factors = Tensor::empty({columns}, DType::f32);
  for (std::int64_t c = 0; c < columns; ++c) {
    const float x = inputs.data<float>()[c];
    // Factor 1 for channels without input.
    factors.data<float>()[c] =
        x > 0 ? std::clamp(std::pow(x + kTiny, a) / std::pow(largest[c] + kTiny, 1 - a), 1e-5f, 1e5f) : 1.0f;
  }
  return factors;
}

}  // namespace quench
