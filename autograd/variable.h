#pragma once
// Tensor of a differentiable computation. The tape holds only Gradient objects and saved tensors, not values.

#include <concepts>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/fused_backward.h"
#include "autograd/quant_output_request.h"
#include "core/tensor/tensor.h"

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
  [[nodiscard]] Tensor value() const { return valid_ ? tensor_ : Tensor(); }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }

  // For in-place accumulation (GEMM with beta 1). Marks the gradient as valid.
  GradientTarget target();
  // Contribution: kept without a copy if first, accumulated otherwise, out of place if the tensor is shared with other
  // gradients. `fused_outputs`, as requested by the consumer, are dropped by a further contribution.
  void contribute(const Tensor& tensor, QuantOutputs fused_outputs = {});

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
  [[nodiscard]] const QuantOutputs& fused_outputs() const noexcept { return fused_outputs_; }

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

  Shape shape_;
  DType dtype_;
  Device device_;
  bool leaf_;
  bool set_outside_ = false;  // tensor_ comes from make_buffer_
  bool valid_ = false;
  bool fused_ = false;    // computed within a fused backward, without a value
  int pending_uses_ = 0;  // recorded functions that have not run yet
  Tensor tensor_;
  std::function<Tensor()> make_buffer_;
  QuantOutputRequest request_;
  QuantOutputs fused_outputs_;  // quantized forms of tensor_
  std::weak_ptr<FusedBackward> fused_backward_;
  std::vector<std::function<void()>> ready_hooks_;
};

// Recomputes a value in the backward pass instead of saving it.
struct RecomputeHandle {
  std::function<Tensor()> recompute;
  // Deferred use of the recomputed value; `request` is answered only for a sole use.
  struct Use {
    std::function<void(Tensor value, const QuantOutputs& outputs)> run;
    QuantOutputRequest request;
  };
  // Run when the producer recomputes the value in the backward pass. Empty if `recomputes` is false.
  std::vector<Use> waiting;
  bool recomputes = false;

  // The request if there is one use; several get the value alone.
  [[nodiscard]] QuantOutputRequest request() const {
    return waiting.size() == 1 ? waiting.front().request : QuantOutputRequest{};
  }
  // The last use gets the caller's reference, and may free the value.
  void run_waiting(Tensor value, const QuantOutputs& outputs = {}) {
    const std::vector<Use> uses = std::exchange(waiting, {});
    for (std::size_t i = 0; i < uses.size(); ++i) uses[i].run(i + 1 < uses.size() ? value : std::move(value), outputs);
  }
};

class Variable {
 public:
  Variable() = default;  // undefined: an absent optional input
  explicit Variable(Tensor value) : value_(std::move(value)) {}
  // gradient_dtype may differ from the value's (f32 gradients of bf16 weights).
  static Variable leaf(Tensor value, DType gradient_dtype);
  static Variable leaf(Tensor value) { return leaf(value, value.dtype()); }

  [[nodiscard]] bool defined() const noexcept { return value_.defined(); }
  [[nodiscard]] const Tensor& value() const noexcept { return value_; }
  void set_value(Tensor value) { value_ = std::move(value); }
  [[nodiscard]] bool requires_grad() const noexcept { return gradient_ != nullptr; }
  [[nodiscard]] const std::shared_ptr<Gradient>& gradient() const noexcept { return gradient_; }
  [[nodiscard]] Tensor grad() const { return gradient_ ? gradient_->value() : Tensor(); }
  // Without gradient, quantization outputs and recompute handle. Throws invalid_argument for a value that its producer
  // left out (unstored_value()).
  [[nodiscard]] Variable detach() const;
  void set_gradient(std::shared_ptr<Gradient> gradient) { gradient_ = std::move(gradient); }

  void set_fused_outputs(QuantOutputs fused_outputs) { fused_outputs_ = std::move(fused_outputs); }
  [[nodiscard]] const QuantOutputs& fused_outputs() const noexcept { return fused_outputs_; }

  // The request that the value answers; nullptr: the op's result. Recompute returns the result.
  void set_substitution(std::shared_ptr<const ValueSubstitution> request) { substitution_ = std::move(request); }
  [[nodiscard]] const std::shared_ptr<const ValueSubstitution>& substitution() const noexcept { return substitution_; }

  // Saving the value again costs no memory.
  void set_saved_by_producer() noexcept { saved_by_producer_ = true; }
  [[nodiscard]] bool saved_by_producer() const noexcept { return saved_by_producer_; }

  // Under selective recompute saved in place of the value.
  void set_recompute(std::shared_ptr<RecomputeHandle> recompute) { recompute_ = std::move(recompute); }
  [[nodiscard]] const std::shared_ptr<RecomputeHandle>& recompute() const noexcept { return recompute_; }

 private:
  Tensor value_;
  QuantOutputs fused_outputs_;
  std::shared_ptr<Gradient> gradient_;
  std::shared_ptr<RecomputeHandle> recompute_;
  std::shared_ptr<const ValueSubstitution> substitution_;
  bool saved_by_producer_ = false;
};

}  // namespace quench::autograd
