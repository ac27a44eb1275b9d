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
  ElementFormat element = ElementFormat::e4m3;  // element format of `rows` and codes
  bool power_of_two = false;
  // float8 codes under this tensorwise encode scale, f32 [], of results whose rows `row_multiple` divides: as they are
  // and, if wanted, transposed. Undefined: none.
  Tensor scale = {};
  bool natural_codes = true, transposed_codes = false;
  std::int64_t row_multiple = 1;
  bool value_needed = true;  // false: next to codes the value may be left out (unstored_value())
  // For the sole consumer, if the producer can recompute the result. The answer is the same object, in
  // Variable::substitution(); nullptr: the value is the result.
  std::shared_ptr<const ValueSubstitution> substitution = nullptr;

  [[nodiscard]] bool wanted() const noexcept { return amax || rows || column_amax || scale.defined(); }
  // The requested substitution, if of type `Kind`; else nullptr.
  template <class Kind>
  [[nodiscard]] std::shared_ptr<const Kind> substitution_as() const {
    return std::dynamic_pointer_cast<const Kind>(substitution);
  }
};

// Without codes. amax is request.amax_into, or starts at 0.
[[nodiscard]] QuantOutputs make_quant_outputs(const QuantOutputRequest& request, const Tensor& result);
// With codes, for producers that write them. `like`: dtype and device of the result.
[[nodiscard]] QuantOutputs make_coded_outputs(const QuantOutputRequest& request, const Shape& shape,
                                              const Tensor& like);

// Shape, dtype and device of a result that only exists as codes; not contiguous, so that ops refuse it.
[[nodiscard]] Tensor unstored_value(const Shape& shape, const Tensor& like);
[[nodiscard]] bool is_unstored(const Tensor& value);

}  // namespace quench::autograd
