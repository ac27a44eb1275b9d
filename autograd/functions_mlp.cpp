#include <array>

#include "autograd/functions.h"
#include "core/ops/embedding.h"
#include "core/ops/swiglu.h"

namespace quench::autograd {

namespace {

struct SwigluBackward {
  Saved saved;
  std::shared_ptr<RecomputeHandle> handle;
  std::shared_ptr<Gradient> din, dout_of;
  GateUpTarget written = {};  // by the producer of the output's gradient

  // Last read of the saved tensor: its buffer is reused for the gradient, unless shared.
  [[nodiscard]] GateUpTarget take_saved() const {
    const Tensor kept = saved.get();
    handle->recompute = nullptr;
    const bool alone = kept.storage().use_count() <= 2;  // the saved tensor and `kept`
    return {kept, alone ? kept : Tensor::empty_like(kept)};
  }

  [[nodiscard]] GateUpTarget pass_target() {
    if (!din || din->quant_request().wanted() || !handle->waiting.empty()) return {};
    const MemoryScope scope(MemoryCategory::activations);
    written = take_saved();
    handle->recomputes = false;
    return written;
  }

  void run() const {
    const MemoryScope scope(MemoryCategory::activations);
    if (written.gradient.defined()) return din->contribute(written.gradient);
    const Tensor dout = dout_of->value();
    const auto [kept, dx] = take_saved();
    Tensor value;
    if (!handle->waiting.empty()) value = Tensor::empty(dout.shape(), kept.dtype(), kept.device());
    const QuantOutputs quant_outputs = din ? make_quant_outputs(din->quant_request(), dx) : QuantOutputs{};
    swiglu_backward({.dout = dout, .gate_up = kept, .dgate_up = dx, .out = value, .quant_outputs = quant_outputs});
    handle->run_waiting(value);
    if (din) din->contribute(dx, quant_outputs);
  }
};

}  // namespace

Variable swiglu(const Variable& gate_up, const QuantOutputRequest& wanted, const Tensor& known) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = gate_up.value();
  Variable out(known.defined() ? known : Tensor::empty({in.size(0), in.size(1) / 2}, in.dtype(), in.device()));
  const QuantOutputs quant_outputs = make_quant_outputs(wanted, out.value());
  if (!known.defined()) quench::swiglu({in, out.value(), quant_outputs});
  out.set_fused_outputs(quant_outputs);
  const auto handle = std::make_shared<RecomputeHandle>();
  const bool recorded = Tape::record("swiglu", {gate_up}, std::array{&out}, [&] {
    const Saved saved = Saved::large(gate_up);
    const Shape shape = out.value().shape();
    handle->recompute = [saved, shape] {
      const MemoryScope again_scope(MemoryCategory::workspace);
      const Tensor kept = saved.get();
      const Tensor value = Tensor::empty(shape, kept.dtype(), kept.device());
      quench::swiglu({kept, value});
      return value;
    };
    handle->recomputes = true;
    const auto backward = std::make_shared<SwigluBackward>(
        SwigluBackward{.saved = saved, .handle = handle, .din = gate_up.gradient(), .dout_of = out.gradient()});
    out.gradient()->set_gate_up_target(
        [of = std::weak_ptr(backward)] { return of.lock() ? of.lock()->pass_target() : GateUpTarget{}; });
    return [backward] { backward->run(); };
  });
  if (recorded) out.set_recompute(handle);
  return out;
}

Variable embedding(const Weight& table, const Tensor& ids) {
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(Tensor::empty({ids.size(0), table.shape()[1]}, table.dtype(), table.device()));
  quench::embedding({table.acquire().value(), ids, out.value()});
  Tape::record("embedding", {table}, std::array{&out}, [&] {
    return [ids, dtable = table.gradient(), dout = out.gradient()] {
      GradientTarget into = dtable->target();
      if (!into.accumulate) into.tensor.zero();
      embedding_backward({.dout = dout->value(), .ids = ids, .dtable = into.tensor});
    };
  });
  return out;
}

}  // namespace quench::autograd
