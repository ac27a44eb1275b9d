#pragma once
// A tensor in a differentiable computation, and the place where its gradient collects.
//
// The value and the gradient have separate lifetimes: the tape holds only Gradient objects and what each function
// chose to save, so that a value dies as soon as the forward pass and the saved tensors no longer need it.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/quant_output_request.h"
#include "core/tensor/tensor.h"

namespace quench::autograd {

// Where a backward function writes: into `tensor`, overwriting it or adding to what is there.
struct GradientTarget {
  Tensor tensor;
  bool accumulate = false;
};

// SwiGLU's input [N,2I], and where its gradient goes; undefined: not to be written by another function.
struct GateUpTarget {
  Tensor gate_up, gradient;
};

class Gradient {
 public:
  Gradient(const Shape& shape, DType dtype, Device device, bool leaf)
      : shape_(shape), dtype_(dtype), device_(device), leaf_(leaf) {}

  [[nodiscard]] bool is_leaf() const noexcept { return leaf_; }
  // True once a contribution has arrived since the last reset.
  [[nodiscard]] bool has_value() const noexcept { return valid_; }
  // The gradient; undefined tensor when no contribution has arrived.
  [[nodiscard]] Tensor value() const { return valid_ ? tensor_ : Tensor(); }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }

  // For kernels that can add in place (GEMM with beta 1): a buffer of the gradient's shape. Marks it as valid.
  GradientTarget target();
  // For results that already stand in a tensor of the variable's shape: kept if it is the first contribution, added
  // otherwise. The tensor may be shared with other gradients; an addition then goes to a fresh buffer. `fused_outputs`
  // is what the request of the gradient's consumer got: it is forgotten when another contribution comes.
  void contribute(const Tensor& tensor, QuantOutputs fused_outputs = {});

  // Of a gradient that SwiGLU alone will read: a function that makes it in one product, and is the only one to do so,
  // may write the gradient of gate and up in its place. Asked for that, the target is taken: nothing is to be
  // contributed here any more.
  [[nodiscard]] GateUpTarget gate_up_target();
  void set_gate_up_target(std::function<GateUpTarget()> target) { gate_up_target_ = std::move(target); }

  // What the function that will read this gradient would like to find beside it.
  void set_quant_request(const QuantOutputRequest& request) noexcept { request_ = request; }
  [[nodiscard]] const QuantOutputRequest& quant_request() const noexcept { return request_; }
  [[nodiscard]] const QuantOutputs& fused_outputs() const noexcept { return fused_outputs_; }

  // Forgets the value and gives its buffer back, so that the next forward pass may use that memory; a buffer that was
  // set from outside stays. The first contribution overwrites: no memset.
  void reset() noexcept;
  // The same for a buffer set from outside.
  void release() noexcept;
  // Uses the given buffer for a leaf from now on (a slice of a flat buffer, for instance).
  void set_buffer(Tensor buffer);

  // The gradient of a leaf, made elsewhere (summed over processes): takes the place of what is there and goes with
  // reset().
  void set_value(Tensor value);

  // A use of this gradient that a backward function has put off: hooks wait for it.
  void begin_use() noexcept { ++pending_uses_; }
  void end_use();
  // Called when the last recorded use of this leaf has been processed in a backward pass.
  void on_ready(std::function<void()> hook) { ready_hooks_.push_back(std::move(hook)); }

 private:
  friend class Tape;
  Shape shape_;
  DType dtype_;
  Device device_;
  bool leaf_;
  bool set_outside_ = false;  // tensor_ came from set_buffer
  bool valid_ = false;
  bool passed_ = false;   // as the gradient of gate and up
  int pending_uses_ = 0;  // recorded nodes that have this gradient as an input and have not run yet
  Tensor tensor_;
  QuantOutputRequest request_;
  QuantOutputs fused_outputs_;  // of tensor_
  std::function<GateUpTarget()> gate_up_target_;
  std::vector<std::function<void()>> ready_hooks_;
};

// The way to make a value again instead of saving it.
struct RecomputeHandle {
  std::function<Tensor()> recompute;
  // Uses that can wait until the backward pass reaches the function that made the value: it makes the value once more
  // on the way and runs them. Empty for functions that promise no such thing (`recomputes` is false).
  std::vector<std::function<void(const Tensor&)>> waiting;
  bool recomputes = false;

  void run_waiting(const Tensor& value) {
    for (const auto& use : std::exchange(waiting, {})) use(value);
  }
};

class Variable {
 public:
  Variable() = default;  // undefined: an absent optional input
  // A constant: no gradient.
  explicit Variable(Tensor value) : value_(std::move(value)) {}
  // A leaf whose gradient is wanted; gradient_dtype may differ from the value's (f32 gradients of bf16 weights).
  static Variable leaf(Tensor value, DType gradient_dtype);
  static Variable leaf(Tensor value) { return leaf(value, value.dtype()); }

  [[nodiscard]] bool defined() const noexcept { return value_.defined(); }
  [[nodiscard]] const Tensor& value() const noexcept { return value_; }
  void set_value(Tensor value) { value_ = std::move(value); }
  [[nodiscard]] bool requires_grad() const noexcept { return gradient_ != nullptr; }
  [[nodiscard]] const std::shared_ptr<Gradient>& gradient() const noexcept { return gradient_; }
  [[nodiscard]] Tensor grad() const { return gradient_ ? gradient_->value() : Tensor(); }
  // The same value without history.
  [[nodiscard]] Variable detach() const { return Variable(value_); }
  void set_gradient(std::shared_ptr<Gradient> gradient) { gradient_ = std::move(gradient); }

  // What the producer wrote beside the value for the consumer that asked.
  void set_fused_outputs(QuantOutputs fused_outputs) { fused_outputs_ = std::move(fused_outputs); }
  [[nodiscard]] const QuantOutputs& fused_outputs() const noexcept { return fused_outputs_; }

  // The value is what the request's `mx` asked for; what is made again is the matrix itself.
  void set_rounded_to_mx() noexcept { rounded_to_mx_ = true; }
  [[nodiscard]] bool rounded_to_mx() const noexcept { return rounded_to_mx_; }

  // The function that made the value keeps it for its own backward pass: to save it again costs nothing.
  void set_saved_by_producer() noexcept { saved_by_producer_ = true; }
  [[nodiscard]] bool saved_by_producer() const noexcept { return saved_by_producer_; }

  // A cheap way to make the value again from tensors that are saved anyway; under selective recompute it is saved
  // instead of the value (see save() in tape.h).
  void set_recompute(std::shared_ptr<RecomputeHandle> recompute) { recompute_ = std::move(recompute); }
  [[nodiscard]] const std::shared_ptr<RecomputeHandle>& recompute() const noexcept { return recompute_; }

 private:
  Tensor value_;
  QuantOutputs fused_outputs_;
  std::shared_ptr<Gradient> gradient_;
  std::shared_ptr<RecomputeHandle> recompute_;
  bool saved_by_producer_ = false;
  bool rounded_to_mx_ = false;
};

}  // namespace quench::autograd
