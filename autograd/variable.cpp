#include "autograd/variable.h"

#include "core/ops/elementwise.h"

namespace quench::autograd {

Variable Variable::detach() const {
  QUENCH_CHECK(
      !value_.defined() || !is_unstored(value_),
      "detach: the value of shape {} was left out, since its producer wrote only float8 codes for one consumer; "
      "request it with QuantOutputRequest::value_needed",
      value_.shape().to_string());
  return Variable(value_);
}

bool Gradient::begin_fused(FusedBackward& op) {
  if (valid_ || pending_uses_ != kProducersUse || !op.begin()) return false;
  return fused_ = valid_ = true;
}

GradientTarget Gradient::target() {
  QUENCH_CHECK(!fused_, "contribution to a gradient that a fused backward has consumed");
  const bool accumulate = valid_;
  fused_outputs_ = {};
  if (valid_ && !leaf_ && !tensor_.is_exclusive()) {
    tensor_ = tensor_.clone();  // shared with another gradient
  }
  if (!tensor_.defined() && make_buffer_) {
    tensor_ = std::exchange(make_buffer_, nullptr)();
    QUENCH_CHECK(tensor_.shape() == shape_ && tensor_.dtype() == dtype_, "set_buffer: {} for a gradient of {}{}",
                 tensor_.describe(), to_string(dtype_), shape_.to_string());
    set_outside_ = true;
  } else if (!tensor_.defined()) {
    const MemoryScope scope(leaf_ ? MemoryCategory::gradients : MemoryCategory::activations);
    tensor_ = Tensor::empty(shape_, dtype_, device_);
  }
  valid_ = true;
  return {tensor_, accumulate};
}

void Gradient::contribute(const Tensor& tensor, QuantOutputs fused_outputs) {
  QUENCH_CHECK(tensor.shape() == shape_, "gradient of shape {} contributed to a variable of shape {}",
               tensor.shape().to_string(), shape_.to_string());
  QUENCH_CHECK(!fused_, "contribution to a gradient that a fused backward has consumed");
  if (!valid_ && !leaf_ && tensor.dtype() == dtype_) {
    tensor_ = tensor;
    fused_outputs_ = std::move(fused_outputs);
    valid_ = true;
    return;
  }
  fused_outputs_ = {};
  if (valid_ && !leaf_ && !tensor_.is_exclusive()) {
    const MemoryScope scope(MemoryCategory::activations);
    const Tensor sum = Tensor::empty(shape_, dtype_, device_);
    add({tensor_, tensor, sum});
    tensor_ = sum;
    return;
  }
  const GradientTarget into = target();
  if (into.accumulate) {
    accumulate({tensor, into.tensor});
  } else {
    cast({tensor, into.tensor});
  }
}

void Gradient::reset() noexcept {
  valid_ = false;
  fused_outputs_ = {};
  if (!set_outside_) tensor_ = Tensor();
}

void Gradient::release() noexcept {
  valid_ = fused_ = false;
  fused_backward_.reset();
  set_outside_ = false;
  tensor_ = Tensor();
  make_buffer_ = nullptr;
  fused_outputs_ = {};
}

void Gradient::end_use() {
  if (--pending_uses_ > 0 || !leaf_ || !valid_) return;
  for (const auto& hook : ready_hooks_) hook();
}

void Gradient::set_buffer(std::function<Tensor()> make_buffer) {
  QUENCH_CHECK(leaf_, "set_buffer: the variable of this gradient is no leaf");
  tensor_ = Tensor();
  make_buffer_ = std::move(make_buffer);
  valid_ = false;
}

void Gradient::set_value(Tensor value) {
  QUENCH_CHECK(leaf_ && value.shape() == shape_ && value.dtype() == dtype_, "set_value: {} for a gradient of {}{}",
               value.describe(), to_string(dtype_), shape_.to_string());
  fused_outputs_ = {};
  tensor_ = std::move(value);
  make_buffer_ = nullptr;
  set_outside_ = false;
  valid_ = true;
}

Variable Variable::leaf(Tensor value, DType gradient_dtype) {
  Variable variable(std::move(value));
  variable.gradient_ =
      std::make_shared<Gradient>(variable.value_.shape(), gradient_dtype, variable.value_.device(), true);
  return variable;
}

}  // namespace quench::autograd
