#pragma once
// GPTQ (Frantar et al., 2022, arXiv:2210.17323): column by column, the rounding error of a weight is made up for by the
// columns that are not rounded yet, so that the layer's outputs on the calibration data change least.

#include <optional>
#include <string_view>

#include "export/methods/input_statistics.h"
#include "export/schemes/quantized_weight.h"
#include "export/schemes/scheme.h"

namespace quench {

// Why a scheme's weights cannot be quantized so, or "": blocks of GGUF cannot.
[[nodiscard]] std::string gptq_problem(const OperandScheme& scheme);

struct GptqOptions {
  // Added to the diagonal of the Gram matrix, as a part of its mean.
  double damping = 0.01;
  // Columns with the largest inputs first; the scales of groups then come from the weight as it was, and codes keep
  // their places, so that readers need not know. Else the scales of a group are chosen when its first column comes.
  bool activation_order = false;
};

// As rtn(), whose scales it uses for everything but groups of a row. Columns without input are 0. Without
// inputs at all (an expert that no token was sent to) it is rtn(). Throws nonfinite naming `name` where
// the matrix of inputs is singular in spite of the damping.
[[nodiscard]] QuantizedWeight gptq(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                                   std::optional<DType> scale_dtype, const InputStatistics& inputs,
                                   const GptqOptions& options = {});

}  // namespace quench
