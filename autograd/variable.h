#pragma once
// Tensor of a differentiable computation. The tape holds only Gradient objects and saved tensors, not values.

#include <concepts>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/fused_backward.h"
#include "autograd/fused_value.h"

namespace quench::autograd {

// Overwrite `tensor` or accumulate into it.
struct GradientTarget {
  Tensor tensor;
  bool accumulate = false;
};

// Gradient of a variable, shared by the variable's copies and the tape.
class Gradient {
 public:
  Gradient(const Shape& shape, DType dtype, Device device, bool leaf)
      : shape_(shape), dtype_(dtype), device_(device), leaf_(leaf) {}

  [[nodiscard]] bool is_leaf() const noexcept { return leaf_; }
  [[nodiscard]] bool has_value() const noexcept { return valid_; }
  // Undefined without a contribution. Throws as FusedValue::value().
  [[nodiscard]] Tensor value() const { return valid_ ? value_.value() : Tensor(); }
  // For the op that reads this gradient, once: value(), whose handle passes to the caller. The buffer may be
  // overwritten if it is then exclusive: shared with no other gradient.
  [[nodiscard]] Tensor take_value();
  // For the consumer whose quant_request() the producer may have answered.
  [[nodiscard]] const FusedValue& fused() const noexcept { return value_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }

  // For in-place accumulation (GEMM with beta 1). Marks the gradient as valid.
  GradientTarget target();
  // Contribution: kept without a copy if first, accumulated otherwise, out of place if the tensor is shared with other
  // gradients. Its quantization outputs, as requested by the consumer, are dropped by a further contribution, which
  // throws if the value was left out.
  void contribute(FusedValue value);

  // For the sole producer of this gradient: the backward function of the op that reads it, begun, if of type `Op`. The
  // producer then computes that instead of this gradient; no contribution may follow. nullptr: contribute.
  template <std::derived_from<FusedBackward> Op>
  [[nodiscard]] std::shared_ptr<const Op> fused_backward() {
    std::shared_ptr<Op> op = std::dynamic_pointer_cast<Op>(fused_backward_.lock());
    return op != nullptr && begin_fused(*op) ? op : nullptr;
  }
  // By the op that reads this gradient. Not owned: its record on the tape does.
  void set_fused_backward(std::weak_ptr<FusedBackward> op) noexcept { fused_backward_ = std::move(op); }

  void set_quant_request(const QuantOutputRequest& request) noexcept { request_ = request; }
  [[nodiscard]] const QuantOutputRequest& quant_request() const noexcept { return request_; }
  // For a producer that is about to contribute: the request if it is the only one; otherwise empty, since contribute()
  // would drop the outputs.
  [[nodiscard]] QuantOutputRequest request_to_producer() const {
    return valid_ || pending_uses_ != kProducersUse ? QuantOutputRequest{} : request_;
  }

  // The handle of this gradient's variable, by the op that made both. Not owned: its record on the tape does.
  void set_recompute(std::weak_ptr<RecomputeHandle> handle) noexcept { recompute_ = std::move(handle); }

  // Drops the value and frees its buffer, unless set from outside. The first contribution overwrites: no memset.
  void reset() noexcept;
  // The same, including an outside buffer.
  void release() noexcept;
  // Buffer of a leaf (e.g. in a flat parameter buffer), made by the first contribution.
  void set_buffer(std::function<Tensor()> make_buffer);

  // Replaces any value, until reset().
  void set_value(Tensor value);

  // Deferred use; ready hooks wait for it.
  void begin_use() noexcept { ++pending_uses_; }
  void end_use();
  // Ends the use by a record that will not run: without hooks.
  void drop_use() noexcept { --pending_uses_; }
  // After the last recorded use of this leaf in a backward pass.
  void on_ready(std::function<void()> hook) { ready_hooks_.push_back(std::move(hook)); }

 private:
  friend class Tape;
  static constexpr int kProducersUse = 1;  // the caller's own
  [[nodiscard]] bool begin_fused(FusedBackward& op);
  // By the tape, after the op's record: uses that no backward function of the op has run.
  void run_deferred();

  Shape shape_;
  DType dtype_;
  Device device_;
  bool leaf_;
  bool set_outside_ = false;  // value_ comes from make_buffer_
  bool valid_ = false;
  bool fused_ = false;    // computed within a fused backward, without a value
  int pending_uses_ = 0;  // recorded functions that have not run yet
  FusedValue value_;
  std::function<Tensor()> make_buffer_;
  QuantOutputRequest request_;
  std::weak_ptr<RecomputeHandle> recompute_;
  std::weak_ptr<FusedBackward> fused_backward_;
  std::vector<std::function<void()>> ready_hooks_;
};

class Variable {
 public:
  Variable() = default;  // undefined: an absent optional input
  explicit Variable(Tensor value) : value_(std::move(value)) {}
  explicit Variable(FusedValue value) : value_(std::move(value)) {}
  // gradient_dtype may differ from the value's (f32 gradients of bf16 weights).
  static Variable leaf(Tensor value, DType gradient_dtype);
  static Variable leaf(Tensor value) { return leaf(value, value.dtype()); }

  [[nodiscard]] bool defined() const noexcept { return value_.defined(); }
  [[nodiscard]] const Shape& shape() const noexcept { return value_.shape(); }
  [[nodiscard]] DType dtype() const noexcept { return value_.dtype(); }
  [[nodiscard]] Device device() const { return value_.device(); }
  // Throws invalid_argument if the producer left the value out for another consumer, or substituted it
  // (FusedValue::value()).
  [[nodiscard]] const Tensor& value() const { return value_.value(); }
  // Another value: without quantization outputs and recompute handle.
  void set_value(Tensor value) { value_ = std::move(value); }
  // For the consumer whose request the producer may have answered, and for what is saved of the value.
  [[nodiscard]] const FusedValue& fused() const noexcept { return value_; }
  [[nodiscard]] bool requires_grad() const noexcept { return gradient_ != nullptr; }
  [[nodiscard]] const std::shared_ptr<Gradient>& gradient() const noexcept { return gradient_; }
  [[nodiscard]] Tensor grad() const { return gradient_ ? gradient_->value() : Tensor(); }
  // Without gradient, quantization outputs and recompute handle. Throws as value().
  [[nodiscard]] Variable detach() const { return Variable(value()); }
  void set_gradient(std::shared_ptr<Gradient> gradient) { gradient_ = std::move(gradient); }

  // By the producer of the value: it keeps the value until its backward function.
  void set_saved_by_producer() noexcept { value_.set_saved_by_producer(); }
  // By the producer of the value, after or within Tape::record(): under selective recompute, and where the value was
  // left out, saved in place of the value.
  void set_recompute(std::shared_ptr<RecomputeHandle> recompute);

 private:
  FusedValue value_;
  std::shared_ptr<Gradient> gradient_;
};

}  // namespace quench::autograd
