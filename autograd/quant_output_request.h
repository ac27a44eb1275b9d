#pragma once
// Fused quantization outputs (amax, float8 rows, column amax) requested by the consumer of a value or gradient.
// Producers may ignore requests; the consumer then runs its own pass.

#include <optional>

#include "core/number/e8m0.h"
#include "core/ops/quantize/quant_outputs.h"

namespace quench::autograd {

struct QuantOutputRequest {
  bool amax = false;                            // tensorwise amax
  bool rows = false;                            // rowwise float8
  bool column_amax = false;                     // amax of each column
  ElementFormat element = ElementFormat::e4m3;  // of `rows`
  bool power_of_two = false;
  // In place of the matrix: its values rounded to MX along the columns, if the producer can recompute the matrix
  // (Variable::rounded_to_mx).
  std::optional<MxScaleMode> mx = std::nullopt;

  [[nodiscard]] bool wanted() const noexcept { return amax || rows || column_amax; }
};

// amax starts at 0.
[[nodiscard]] QuantOutputs make_quant_outputs(const QuantOutputRequest& request, const Tensor& result);

}  // namespace quench::autograd
