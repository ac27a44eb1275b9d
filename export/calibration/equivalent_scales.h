#pragma once
// Factors of a layer's input channels that move into its weight before it is quantized: y = (x / s) (W diag(s))^T. What
// divides the inputs is folded into the layer before (fold.h), so that exported models stay plain.

#include <optional>
#include <string>
#include <vector>

#include "export/calibration/input_statistics.h"
#include "export/quantized_weight.h"

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

// All return f32 [K], positive and finite, or nothing where no factor is of use.

// AWQ (Lin et al., 2023, arXiv:2306.00978): s = mean|x|^r, normalised by sqrt(max s * min s), with the r of 20 from 0
// to 0.95 for which the quantized weights change the layer's outputs least. Needs the Gram matrix.
[[nodiscard]] std::optional<Tensor> awq_scales(const ScaleChoiceArgs& args);

// SmoothQuant (Xiao et al., 2022, arXiv:2211.10438): s = max|x|^a / max|w|^(1 - a), a being the smoothing.
[[nodiscard]] std::optional<Tensor> smoothquant_scales(const ScaleChoiceArgs& args);

}  // namespace quench
