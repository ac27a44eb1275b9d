#pragma once
// Quantization outputs (amax, float8 rows, column amax) that a consumer asks the producer of a value or gradient to
// fuse.
//
// The consumer of an activation hands its request to the function that makes it; the consumer of a gradient leaves it
// with the Gradient. Producers that can fill a QuantOutputs on the way do; the others ignore the request, and the
// consumer makes a pass of its own.

#include <optional>

#include "core/number/e8m0.h"
#include "core/ops/quantize/quant_outputs.h"

namespace quench::autograd {

struct QuantOutputRequest {
  bool amax = false;                            // largest magnitude of the matrix
  bool rows = false;                            // the matrix as float8 by row
  bool column_amax = false;                     // largest magnitude of each column
  ElementFormat element = ElementFormat::e4m3;  // of `rows`
  bool power_of_two = false;
  // Not beside the matrix but in its place: the values rounded to MX along the columns (core/ops/quantize/round_mx.h),
  // if the producer can make the matrix itself again (Variable::rounded_to_mx).
  std::optional<MxScaleMode> mx = std::nullopt;

  [[nodiscard]] bool wanted() const noexcept { return amax || rows || column_amax; }
};

// Quantization outputs for a result of the given matrix's shape, dtype and device, maxima at 0.
[[nodiscard]] QuantOutputs make_quant_outputs(const QuantOutputRequest& request, const Tensor& result);

}  // namespace quench::autograd
