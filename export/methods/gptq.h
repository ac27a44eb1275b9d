#pragma once
// GPTQ (Frantar et al., 2022, arXiv:2210.17323): columns are quantized in order, each one's rounding error compensated
// in the rest, against the layer's output error on calibration data.

#include <optional>
#include <string_view>

#include "export/methods/input_statistics.h"
#include "export/schemes/quantized_weight.h"
#include "export/schemes/scheme.h"

namespace quench {

// Reason for refusal, or "": no GGUF blocks.
[[nodiscard]] std::string gptq_problem(const OperandScheme& scheme);

struct GptqOptions {
  // Share of InputStatistics::mean_square_sum(), added to the Gram matrix's diagonal.
  double damping = 0.01;
  // Columns by decreasing input magnitude (act_order): scales of rows and groups are those of least squared error of
  // the original weight, a column's times 1 / (H^-1)_cc of the damped Gram matrix H; the storage order stays. Else a
  // group's scales are computed at its first column, from its amax.
  bool activation_order = true;
  std::optional<float> shared_amax = {};  // rtn()
};

// Scales other than of rows and groups are those of rtn(). Columns without input are 0. Without any input (an expert
// without tokens): rtn(). Throws nonfinite naming `name` if the damped Gram matrix is singular.
[[nodiscard]] QuantizedWeight gptq(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                                   std::optional<DType> scale_dtype, const InputStatistics& inputs,
                                   const GptqOptions& options = {});

}  // namespace quench
