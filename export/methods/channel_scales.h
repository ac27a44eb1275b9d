#pragma once
// Per-channel factors moved from a layer's input into its weight before quantization, y = (x / s) (W diag(s))^T. The
// division is fused into the producer of x (export/ptq/fuse_scales.h): no extra op.

#include <optional>
#include <string>
#include <vector>

#include "export/methods/input_statistics.h"
#include "export/schemes/quantized_weight.h"

namespace quench {

// One weight of those with a common input.
struct ScaledWeight {
  std::string name;
  Tensor weight;                          // f32 [N,K], CPU
  const OperandScheme* scheme = nullptr;  // null: unquantized
  std::int64_t expert = 0;                // weights of one share the amax of two-level scales
};

struct ScaleChoiceArgs {
  const std::vector<ScaledWeight>& weights;
  const InputStatistics& inputs;
  // Columns with equal entries share a factor; empty: none do.
  std::vector<std::int64_t> shared = {};
  std::optional<DType> scale_dtype = std::nullopt;
  double smoothing = 0.5;  // alpha of SmoothQuant
};

// Maximum over columns of equal group; f32 [K], in place; `shared` as in ScaleChoiceArgs.
void share_columns(const Tensor& values, const std::vector<std::int64_t>& shared);
[[nodiscard]] bool any_quantized(const std::vector<ScaledWeight>& weights);

}  // namespace quench
