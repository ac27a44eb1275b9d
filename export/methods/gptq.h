#pragma once
// GPTQ (Frantar et al., 2022, arXiv:2210.17323): columns are quantized in order; each column's rounding error is
// compensated in the remaining columns, minimising the layer's output error on calibration data.

#include <optional>
#include <string_view>

#include "export/methods/input_statistics.h"
#include "export/schemes/quantized_weight.h"
#include "export/schemes/scheme.h"

namespace quench {

// Reason why the scheme is not supported, or "": GGUF blocks are not.
[[nodiscard]] std::string gptq_problem(const OperandScheme& scheme);

struct GptqOptions {
  // Damping: fraction of the mean diagonal added to the Gram matrix's diagonal.
  double damping = 0.01;
  // Columns in order of decreasing input magnitude (act_order); group scales are then computed from the original
  // weight, and the storage order is unchanged. Otherwise a group's scales are computed at its first column.
  bool activation_order = false;
};

// rtn() with error compensation; all scales except row groups are those of rtn(). Columns without input are 0. Without
// any inputs (an expert without tokens): rtn(). Throws nonfinite naming `name` if the damped Gram matrix is singular.
[[nodiscard]] QuantizedWeight gptq(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                                   std::optional<DType> scale_dtype, const InputStatistics& inputs,
                                   const GptqOptions& options = {});

}  // namespace quench
