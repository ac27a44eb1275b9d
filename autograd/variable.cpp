#include "autograd/variable.h"

#include "core/ops/elementwise.h"

namespace quench::autograd {

bool Gradient::begin_fused(FusedBackward& op) {
  if (valid_ || pending_uses_ != kProducersUse || !op.begin()) return false;
  return fused_ = valid_ = true;
}

GradientTarget Gradient::target() {
  QUENCH_CHECK(!fused_, "contribution to a gradient that a fused backward has consumed");
  const bool accumulate = valid_;
  if (valid_ && !leaf_ && !value_.value().is_exclusive()) {
    value_ = value_.value().clone();  // shared with another gradient
  } else if (value_.defined()) {
    value_ = value_.value();  // without quantization outputs
  } else if (make_buffer_) {
    value_ = std::exchange(make_buffer_, nullptr)();
    QUENCH_CHECK(value_.shape() == shape_ && value_.dtype() == dtype_, "set_buffer: {} for a gradient of {}{}",
                 value_.value().describe(), to_string(dtype_), shape_.to_string());
    set_outside_ = true;
  } else {
    const MemoryScope scope(leaf_ ? MemoryCategory::gradients : MemoryCategory::activations);
    value_ = Tensor::empty(shape_, dtype_, device_);
  }
  valid_ = true;
  return {value_.value(), accumulate};
}

void Gradient::contribute(FusedValue value) {
  QUENCH_CHECK(value.shape() == shape_, "gradient of shape {} contributed to a variable of shape {}",
               value.shape().to_string(), shape_.to_string());
  QUENCH_CHECK(!fused_, "contribution to a gradient that a fused backward has consumed");
  if (!valid_ && !leaf_ && value.dtype() == dtype_) {
    value_ = std::move(value);
    valid_ = true;
    return;
  }
  const Tensor& tensor = value.value();
  if (valid_ && !leaf_ && !value_.value().is_exclusive()) {
    const MemoryScope scope(MemoryCategory::activations);
    const Tensor sum = Tensor::empty(shape_, dtype_, device_);
    quench::add({value_.value(), tensor, sum});
    value_ = sum;
    return;
  }
  const GradientTarget into = target();
  if (into.accumulate) {
    accumulate({tensor, into.tensor});
  } else {
    cast({tensor, into.tensor});
  }
}

Tensor Gradient::take_value() {
  QUENCH_CHECK(!leaf_, "take_value: the gradient of a leaf stays its own");
  Tensor taken = value();
  reset();
  return taken;
}

void Gradient::reset() noexcept {
  valid_ = false;
  if (!set_outside_) value_ = {};
}

void Gradient::release() noexcept {
  valid_ = fused_ = false;
  fused_backward_.reset();
  recompute_.reset();
  set_outside_ = false;
  value_ = {};
  make_buffer_ = nullptr;
}

void Gradient::run_deferred() {
  if (const auto handle = recompute_.lock()) handle->run_remaining();
}

void Gradient::end_use() {
  if (--pending_uses_ > 0 || !leaf_ || !valid_) return;
  for (const auto& hook : ready_hooks_) hook();
}

void Gradient::set_buffer(std::function<Tensor()> make_buffer) {
  QUENCH_CHECK(leaf_, "set_buffer: the variable of this gradient is no leaf");
  value_ = {};
  make_buffer_ = std::move(make_buffer);
  valid_ = false;
}

void Gradient::set_value(Tensor value) {
  QUENCH_CHECK(leaf_ && value.shape() == shape_ && value.dtype() == dtype_, "set_value: {} for a gradient of {}{}",
               value.describe(), to_string(dtype_), shape_.to_string());
  value_ = std::move(value);
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

void Variable::set_recompute(std::shared_ptr<RecomputeHandle> recompute) {
  if (gradient_ != nullptr) gradient_->set_recompute(recompute);
  value_.set_recompute(std::move(recompute));
}

}  // namespace quench::autograd
