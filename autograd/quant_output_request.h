#pragma once
// Fused quantization outputs (amax, float8 rows, column amax) requested by the consumer of a value or gradient.
// Producers may ignore requests; the consumer then runs its own pass.

#include <memory>

#include "core/ops/quantize/quant_outputs.h"

namespace quench::autograd {

// Base class of a request for another value in place of the result, of its shape and dtype (e.g. rounded to the format
// of the consumer's GEMM). Producers find a kind that they support by its type.
class ValueSubstitution {
 public:
  ValueSubstitution() = default;
  ValueSubstitution(const ValueSubstitution&) = delete;
  ValueSubstitution& operator=(const ValueSubstitution&) = delete;
  virtual ~ValueSubstitution() = default;
};

struct QuantOutputRequest {
  bool amax = false;                            // tensorwise amax
  Tensor amax_into = {};                        // f32 []: maximum with that amax, in place of a new tensor
  bool rows = false;                            // rowwise float8
  bool column_amax = false;                     // amax of each column
  ElementFormat element = ElementFormat::e4m3;  // of `rows`
  bool power_of_two = false;
  // For the sole consumer, if the producer can recompute the result. The answer is the same object, in
  // Variable::substitution(); nullptr: the value is the result.
  std::shared_ptr<const ValueSubstitution> substitution = nullptr;

  [[nodiscard]] bool wanted() const noexcept { return amax || rows || column_amax; }
  // The requested substitution, if of type `Kind`; else nullptr.
  template <class Kind>
  [[nodiscard]] std::shared_ptr<const Kind> substitution_as() const {
    return std::dynamic_pointer_cast<const Kind>(substitution);
  }
};

// amax is request.amax_into, or starts at 0.
[[nodiscard]] QuantOutputs make_quant_outputs(const QuantOutputRequest& request, const Tensor& result);

}  // namespace quench::autograd
