#include "autograd/swiglu.h"

#include <array>
#include <optional>

#include "autograd/functions_moe.h"
#include "autograd/mx_substitution.h"
#include "core/ops/experts/token_permutation.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/swiglu.h"

namespace quench::autograd {

namespace {

class RecordedSwiglu final : public SwigluBackward {
 public:
  RecordedSwiglu(Saved saved, std::shared_ptr<RecomputeHandle> handle, std::shared_ptr<Gradient> din,
                 std::shared_ptr<Gradient> dout, GatedActivation of_gate)
      : saved_(std::move(saved)), handle_(std::move(handle)), din_(std::move(din)), dout_(std::move(dout)) {
    activation = of_gate;
  }

  [[nodiscard]] bool begin() override {
    if (!din_ || din_->quant_request().wanted() || handle_->has_uses()) return false;
    const MemoryScope scope(MemoryCategory::activations);
    take_saved();
    handle_->end_deferring();
    return true;
  }

  void run() {
    const MemoryScope scope(MemoryCategory::activations);
    if (dgate_up.defined()) return din_->contribute(dgate_up);  // begun, and written by the producer of dout
    Tensor dout = dout_->value();
    const Shape out_shape = dout.shape();
    take_saved();
    const QuantOutputRequest wanted = din_ ? din_->request_to_producer() : QuantOutputRequest{};
    const QuantOutputs quant_outputs = make_coded_outputs(wanted, gate_up.shape(), gate_up);
    if (quant_outputs.has_codes() && !wanted.value_needed) dgate_up = Tensor();
    const QuantOutputRequest again = handle_->request();
    const QuantOutputs out_codes = make_coded_outputs(again, out_shape, gate_up);
    Tensor value;
    if (handle_->has_uses() && (again.value_needed || !out_codes.has_codes()))
      value = Tensor::empty(out_shape, gate_up.dtype(), gate_up.device());
    swiglu_backward({.dout = dout,
                     .gate_up = gate_up,
                     .dgate_up = dgate_up,
                     .out = value,
                     .quant_outputs = quant_outputs,
                     .out_codes = out_codes,
                     .activation = activation});
    // Last read: freed before the deferred uses.
    dout = Tensor();
    dout_->release();
    FusedValue gradient = FusedValue::produced(dgate_up, gate_up.shape(), gate_up, quant_outputs);
    if (!dgate_up.defined()) {
      saved_ = {};
      gate_up = Tensor();
    }
    if (handle_->has_uses())
      handle_->run_uses(FusedValue::produced(std::move(value), out_shape, gradient.operand(), out_codes));
    if (din_) din_->contribute(std::move(gradient));
  }

 private:
  // Last read of the saved tensor: its buffer is reused for the gradient, unless shared.
  void take_saved() {
    gate_up = saved_.get();
    handle_->end();
    const bool alone = gate_up.is_exclusive(2);  // the saved tensor and `gate_up`
    dgate_up = alone ? gate_up : Tensor::empty_like(gate_up);
  }

  Saved saved_;
  std::shared_ptr<RecomputeHandle> handle_;
  std::shared_ptr<Gradient> din_, dout_;
};

}  // namespace

Variable swiglu(const Variable& gate_up, const QuantOutputRequest& wanted, const Tensor& known,
                GatedActivation activation) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = gate_up.value();
  const Shape half{in.size(0), in.size(1) / 2};
  const QuantOutputs quant_outputs = known.defined() ? QuantOutputs{} : make_coded_outputs(wanted, half, in);
  Tensor result = known;
  if (!known.defined()) {
    // A value left out on a tape must be recomputable.
    const bool recomputable = Tape::current() == nullptr || gate_up.requires_grad();
    if (wanted.value_needed || !quant_outputs.has_codes() || !recomputable)
      result = Tensor::empty(half, in.dtype(), in.device());
    quench::swiglu({in, result, quant_outputs, activation});
  }
  Variable out(FusedValue::produced(result, half, in, quant_outputs));
  Tape::record("swiglu", {gate_up}, std::array{&out}, [&] {
    const Saved saved = Saved::large(gate_up);
    const auto recompute = [saved, half, activation] {
      const MemoryScope again_scope(MemoryCategory::workspace);
      const Tensor kept = saved.get();
      const Tensor value = Tensor::empty(half, kept.dtype(), kept.device());
      quench::swiglu({.gate_up = kept, .out = value, .activation = activation});
      return value;
    };
    const auto handle = std::make_shared<RecomputeHandle>(recompute, true);
    out.set_recompute(handle);
    const auto backward =
        std::make_shared<RecordedSwiglu>(saved, handle, gate_up.gradient(), out.gradient(), activation);
    out.gradient()->set_fused_backward(backward);
    return [backward] { backward->run(); };
  });
  return out;
}

Variable expert_swiglu(const Variable& gate_up, const Variable& weights, const TokenPermutation& rows,
                       bool score_before_experts, const QuantOutputRequest& request,
                       const std::optional<ClampedUnit>& clamped) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = gate_up.value();
  const Tensor result = Tensor::empty({in.size(0), in.size(1) / 2}, in.dtype(), in.device());
  const Tensor factors = weights.value(), pairs = rows.pairs;
  // Rounded output requires recompute of the unrounded matrix in the backward pass.
  const bool recomputes = gate_up.requires_grad() || weights.requires_grad() || Tape::current() == nullptr;
  const auto rounding =
      recomputes && result.size(1) % kMxBlockSize == 0 ? request.substitution_as<MxSubstitution>() : nullptr;
  quench::expert_swiglu({.gate_up = in,
                         .weights = factors,
                         .pairs = pairs,
                         .out = result,
                         .score_before_experts = score_before_experts,
                         .round = rounding ? std::optional(rounding->mode) : std::nullopt,
                         .clamped = clamped});
  Variable out(FusedValue::substituted(result, rounding));
  Tape::record("expert_swiglu", {gate_up, weights}, std::array{&out}, [&] {
    const Saved saved = Saved::large(gate_up);
    const Shape shape = result.shape();
    const auto recompute = [saved, shape, factors, pairs, score_before_experts, clamped] {
      const MemoryScope again_scope(MemoryCategory::workspace);
      const Tensor kept = saved.get();
      const Tensor value = Tensor::empty(shape, kept.dtype(), kept.device());
      quench::expert_swiglu({.gate_up = kept,
                             .weights = factors,
                             .pairs = pairs,
                             .out = value,
                             .score_before_experts = score_before_experts,
                             .clamped = clamped});
      return value;
    };
    const auto handle = std::make_shared<RecomputeHandle>(recompute, true);
    out.set_recompute(handle);
    return [saved, shape, factors, pairs, score_before_experts, clamped, handle, din = gate_up.gradient(),
            dweights = weights.gradient(), dout_of = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor kept = saved.get(), dout = dout_of->value();
      // Last read of the saved tensor: its buffer is reused for the gradient, unless shared.
      handle->end();
      const bool alone = kept.is_exclusive(2);  // the saved tensor and `kept`
      const Tensor dx = alone ? kept : Tensor::empty_like(kept);
      Tensor value;
      if (handle->has_uses()) value = Tensor::empty(shape, kept.dtype(), kept.device());
      const Tensor df = Tensor::empty_like(factors);
      expert_swiglu_backward({.dout = dout,
                              .gate_up = kept,
                              .weights = factors,
                              .pairs = pairs,
                              .dgate_up = dx,
                              .dweights = df,
                              .out = value,
                              .score_before_experts = score_before_experts,
                              .clamped = clamped});
      handle->run_uses(std::move(value));
      if (dweights) dweights->contribute(df);
      if (din) din->contribute(dx);
    };
  });
  return out;
}

}  // namespace quench::autograd
