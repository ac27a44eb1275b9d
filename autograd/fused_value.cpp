#include "autograd/fused_value.h"

namespace quench::autograd {
namespace {

QuantOutputs make_outputs(const QuantOutputRequest& request, const Shape& shape, DType dtype, Device device) {
  QuantOutputs quant_outputs;
  if (!request.wanted()) return quant_outputs;
  QUENCH_CHECK(shape.rank() == 2, "quantization outputs: the result is {}, expected a matrix", shape.to_string());
  if (request.amax) {
    quant_outputs.accumulates_amax = request.amax_into.defined();
    if (request.amax_raised != nullptr) *request.amax_raised = true;
    quant_outputs.amax = request.amax_into.defined() ? request.amax_into : Tensor::zeros({}, DType::f32, device);
  }
  if (request.column_amax) quant_outputs.column_amax = Tensor::zeros({1, shape[1]}, DType::f32, device);
  if (request.rows) {
    const QuantFormat format = code_format(request.element, Granularity::row);
    quant_outputs.rows = QuantTensor::empty(format, shape, dtype, device);
    quant_outputs.power_of_two = request.power_of_two;
  }
  return quant_outputs;
}

}  // namespace

QuantOutputs make_quant_outputs(const QuantOutputRequest& request, const Tensor& result) {
  return make_outputs(request, result.shape(), result.dtype(), result.device());
}

QuantOutputs make_coded_outputs(const QuantOutputRequest& request, const Shape& shape, const Tensor& like) {
  QuantOutputs quant_outputs = make_outputs(request, shape, like.dtype(), like.device());
  if (!request.scale.defined() || shape.numel() <= 1 || shape[0] % request.row_multiple != 0) return quant_outputs;
  const auto codes = [&](Orientation orientation) {
    const QuantFormat format = code_format(request.element, Granularity::tensor, orientation);
    const Tensor payload = Tensor::empty(format.payload_shape(shape), payload_dtype(request.element), like.device());
    return QuantTensor(format, shape, like.dtype(), payload, request.scale);
  };
  if (request.natural_codes) quant_outputs.codes = codes(Orientation::natural);
  if (request.transposed_codes) quant_outputs.transposed_codes = codes(Orientation::transposed);
  return quant_outputs;
}

Tensor unstored_value(const Shape& shape, const Tensor& like) {
  return Tensor::empty({1}, like.dtype(), like.device()).strided(shape, Shape{0, 0}, 0);
}

FusedValue FusedValue::codes_only(const Shape& shape, const Tensor& like, QuantOutputs outputs) {
  QUENCH_CHECK(outputs.has_codes(), "codes_only: a value of shape {} without codes", shape.to_string());
  FusedValue value = left_out(shape, like);
  value.quant_outputs_ = std::move(outputs);
  return value;
}

FusedValue FusedValue::left_out(const Shape& shape, const Tensor& like) {
  FusedValue value(unstored_value(shape, like));
  value.left_out_ = true;
  return value;
}

FusedValue FusedValue::produced(Tensor value, const Shape& shape, const Tensor& like, QuantOutputs outputs) {
  return value.defined() ? FusedValue(std::move(value), std::move(outputs))
                         : codes_only(shape, like, std::move(outputs));
}

FusedValue FusedValue::substituted(Tensor value, std::shared_ptr<const ValueSubstitution> request) {
  FusedValue result(std::move(value));
  result.substitution_ = std::move(request);
  return result;
}

ValueForm FusedValue::form() const noexcept {
  if (!defined()) return ValueForm::undefined;
  if (substitution_ != nullptr) return ValueForm::substituted;
  if (!left_out_) return ValueForm::stored;
  return recompute_ != nullptr ? ValueForm::recomputable : ValueForm::codes_only;
}

void FusedValue::refuse() const {
  QUENCH_CHECK(substitution_ == nullptr,
               "the value of shape {} was substituted for the one consumer that requested it; other readers need a "
               "producer without QuantOutputRequest::substitution",
               shape().to_string());
  QUENCH_FAIL(ErrorCode::invalid_argument,
              "the value of shape {} was left out, since its producer wrote only float8 codes for one consumer, or was "
              "told that it has no reader; readers request it with QuantOutputRequest::value_needed",
              shape().to_string());
}

Tensor RecomputeHandle::value() const {
  QUENCH_CHECK(recompute_ != nullptr, "recompute of a value whose producer has run its backward function");
  return recompute_();
}

bool RecomputeHandle::defer(Use use) {
  if (in_backward_) waiting_.push_back(std::move(use));
  return in_backward_;
}

void RecomputeHandle::run_uses(FusedValue value) {
  const std::vector<Use> uses = std::exchange(waiting_, {});
  for (std::size_t i = 0; i < uses.size(); ++i) uses[i].run(i + 1 < uses.size() ? value : std::move(value));
}

}  // namespace quench::autograd
