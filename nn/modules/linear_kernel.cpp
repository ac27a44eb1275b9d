#include "nn/modules/linear_kernel.h"

#include "autograd/functions.h"
#include "core/ops/gated_linear.h"

namespace quench::nn {
namespace {

std::string_view to_string(LinearMode mode) {
  switch (mode) {
    case LinearMode::recorded: return "recorded";
    case LinearMode::inference: return "inference";
    case LinearMode::recompute: break;
  }
  return "recompute";
}

std::string_view to_string(LinearEpilogue epilogue) {
  switch (epilogue) {
    case LinearEpilogue::none: return "";
    case LinearEpilogue::gated_activation: return ", with a gated activation";
    case LinearEpilogue::accumulate: break;
  }
  return ", accumulating";
}

class HighPrecisionLinear final : public LinearKernel {
 public:
  [[nodiscard]] bool supports(const LinearCall& call, const Parameter&, const Weight&) const override {
    switch (call.mode) {
      case LinearMode::recorded: return call.norm == nullptr && call.epilogue != LinearEpilogue::gated_activation;
      case LinearMode::inference:
        return call.epilogue == LinearEpilogue::none || call.epilogue == LinearEpilogue::gated_activation;
      case LinearMode::recompute: break;
    }
    return false;
  }
  [[nodiscard]] std::string_view name() const override { return "high precision"; }

 private:
  [[nodiscard]] LinearOutput do_run(const LinearCall& call, const Parameter& weight,
                                    const Weight& bias) const override {
    const bool gated = call.epilogue == LinearEpilogue::gated_activation;
    if (call.norm == nullptr && !gated) return {autograd::linear(call.x, weight.weight(), bias, call.out)};
    const MemoryScope scope(MemoryCategory::activations);
    const Tensor x = call.x.value();
    const Weight::Acquired w = weight.weight().acquire();
    const auto b = bias.acquire();
    const Tensor y = Tensor::empty({x.size(0), w.value().size(0) / (gated ? 2 : 1)}, x.dtype(), x.device());
    if (call.norm != nullptr)
      normed_linear({.x = x,
                     .norm = *call.norm,
                     .values = w.value(),
                     .packed = {},
                     .y = y,
                     .bias = b.value(),
                     .gated = gated ? std::optional(call.activation) : std::nullopt});
    else
      gated_linear({.x = x, .weight = w.value(), .y = y, .bias = b.value(), .activation = call.activation});
    return gated ? LinearOutput{{}, y} : LinearOutput{Variable(y)};
  }
};

}  // namespace

LinearOutput LinearKernel::run(const LinearCall& call, const Parameter& weight, const Weight& bias) const {
  QUENCH_CHECK_AS(ErrorCode::unsupported, supports(call, weight, bias),
                  "{}: unsupported call of a linear kernel: {}{}{}", name(), to_string(call.mode),
                  call.norm != nullptr ? ", with RMSNorm" : "", to_string(call.epilogue));
  return do_run(call, weight, bias);
}

Variable LinearKernel::apply(const Variable& x, const Parameter& weight, const Weight& bias) const {
  return run({.x = x}, weight, bias).y;
}

Tensor LinearKernel::recompute(const Variable& x, const Parameter& weight, const Weight& bias) const {
  const LinearCall call{.x = x, .mode = LinearMode::recompute};
  if (supports(call, weight, bias)) return run(call, weight, bias).y.value();
  const autograd::NoGrad no_grad;
  return apply(x, weight, bias).value();
}

const Parameter* LinearKernel::weight_scales() const {
  for (const KernelParameter& own : parameters())
    if (own.parameter->scales) return own.parameter;
  return nullptr;
}

bool LinearObserver::supports(const LinearCall& call, const Parameter&, const Weight&) const {
  return !call.is_fused();
}

LinearOutput LinearObserver::do_run(const LinearCall& call, const Parameter& weight, const Weight& bias) const {
  if (call.mode == LinearMode::recompute) return {Variable(wrapped().recompute(call.x, weight, bias))};
  return {observe(call.x, weight, bias)};
}

std::shared_ptr<const LinearKernel> high_precision_linear_kernel() {
  static const auto kernel = std::make_shared<const HighPrecisionLinear>();
  return kernel;
}

}  // namespace quench::nn
