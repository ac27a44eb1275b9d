#pragma once
// Channel scales: per-channel factors moved from a layer's input into its weight before quantization,
// y = (x / s) (W diag(s))^T. The division is fused into the producer of x (export/ptq/fuse_scales.h), so that exported
// models need no extra op.

#include <optional>
#include <string>
#include <vector>

#include "export/methods/input_statistics.h"
#include "export/schemes/quantized_weight.h"

namespace quench {

// One of the weights that read the same inputs.
struct ScaledWeight {
  std::string name;
  Tensor weight;                          // f32 [N,K] on the CPU
  const OperandScheme* scheme = nullptr;  // null: stays in high precision
};

struct ScaleChoiceArgs {
  const std::vector<ScaledWeight>& weights;
  const InputStatistics& inputs;
  // Columns with the same number share a factor; empty: each has its own.
  std::vector<std::int64_t> shared = {};
  std::optional<DType> scale_dtype = std::nullopt;
  double smoothing = 0.5;  // of smoothquant_scales
};

// Gives columns of one group the maximum over the group. `values` f32 [K] in place; `shared` as in ScaleChoiceArgs.
void share_columns(const Tensor& values, const std::vector<std::int64_t>& shared);
[[nodiscard]] bool any_quantized(const std::vector<ScaledWeight>& weights);

}  // namespace quench
