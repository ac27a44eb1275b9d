#include "recipes/float8/gemms.h"

namespace quench::recipes {
namespace {

std::optional<Float8Operand> left_of(const std::optional<Float8Product>& product, bool wanted = true) {
  return product && wanted ? std::optional(product->left) : std::nullopt;
}
std::optional<Float8Operand> right_of(const std::optional<Float8Product>& product, bool wanted = true) {
  return product && wanted ? std::optional(product->right) : std::nullopt;
}

}  // namespace

void Float8Gemms::multiply(const QuantTensor& left, const QuantTensor& right, const Tensor& c, float beta,
                           const Float8Product& product) const {
  const ScaledGemmArgs args{left, right, c, beta, product.fast_accumulation};
  emulate_ ? gemm_emulated(args) : gemm(args);
}

Float8Uses Float8Gemms::input_uses(bool training) const {
  return {left_of(scheme_.forward), right_of(scheme_.wgrad, training), scheme_.power_of_two_scales};
}
Float8Uses Float8Gemms::weight_uses() const {
  return {right_of(scheme_.forward), right_of(scheme_.dgrad), scheme_.power_of_two_scales};
}
Float8Uses Float8Gemms::gradient_uses(bool input_wanted, bool weight_wanted) const {
  return {left_of(scheme_.dgrad, input_wanted), left_of(scheme_.wgrad, weight_wanted), scheme_.power_of_two_scales};
}

autograd::QuantOutputRequest request_for(const Float8Uses& uses, const Float8Rounding& rounding,
                                         const OperandScaling& scaling) {
  const auto is = [](const std::optional<Float8Operand>& operand, Float8Scaling kind) {
    return operand && operand->scaling == kind;
  };
  autograd::QuantOutputRequest wanted;
  wanted.amax = is(uses.rowwise, Float8Scaling::tensor) || is(uses.columnwise, Float8Scaling::tensor);
  wanted.rows = is(uses.rowwise, Float8Scaling::row);
  wanted.column_amax = is(uses.columnwise, Float8Scaling::row);
  if (wanted.rows) wanted.element = uses.rowwise->element;
  if (wanted.rows && rounding.key) wanted.rows = wanted.column_amax = false;  // computed by quantize_float8_rows
  wanted.power_of_two = uses.power_of_two_scales;
  // A given scale leaves the amax to be recorded, if at all.
  if (scaling.scale.defined()) {
    wanted.amax = wanted.amax && scaling.recorded.defined();
    if (wanted.amax) {
      wanted.amax_into = scaling.recorded;
      wanted.amax_raised = scaling.raised;
      if (scaling.raised != nullptr) *scaling.raised = false;
    }
    const auto& operand = uses.rowwise ? uses.rowwise : uses.columnwise;
    if (is(operand, Float8Scaling::tensor) && !rounding.key) {
      wanted.scale = scaling.scale;
      wanted.element = operand->element;
      wanted.natural_codes = is(uses.rowwise, Float8Scaling::tensor);
      wanted.transposed_codes = is(uses.columnwise, Float8Scaling::tensor);
    }
  }
  return wanted;
}

}  // namespace quench::recipes
