#include "nn/linear_kernel.h"

#include "autograd/functions.h"
#include "core/ops/gated_linear.h"

namespace quench::nn {
namespace {

class HighPrecisionLinear final : public LinearKernel {
 public:
  [[nodiscard]] Variable apply(const Variable& x, const Parameter& weight, const Weight& bias) const override {
    return autograd::linear(x, weight.weight(), bias);
  }
  [[nodiscard]] Tensor gated_product(const Tensor& x, const Parameter& weight, const Weight& bias) const override {
    const MemoryScope scope(MemoryCategory::activations);
    const Weight::Acquired w = weight.weight().acquire();
    const Tensor y = Tensor::empty({x.size(0), w.value().size(0) / 2}, x.dtype(), x.device());
    gated_linear({.x = x, .weight = w.value(), .y = y, .bias = bias.acquire().value()});
    return y;
  }
  [[nodiscard]] Tensor normed_product(const Tensor& x, const AddedNorm& norm, bool gated, const Parameter& weight,
                                      const Weight& bias) const override {
    const MemoryScope scope(MemoryCategory::activations);
    const Weight::Acquired w = weight.weight().acquire();
    const Tensor y = Tensor::empty({x.size(0), w.value().size(0) / (gated ? 2 : 1)}, x.dtype(), x.device());
    normed_linear({.x = x,
                   .norm = norm,
                   .values = w.value(),
                   .packed = {},
                   .y = y,
                   .bias = bias.acquire().value(),
                   .gated = gated});
    return y;
  }
  [[nodiscard]] bool adds_onto() const override { return true; }
  [[nodiscard]] Variable apply_onto(const Variable& x, const Parameter& weight, const Weight& bias,
                                    const Tensor& y) const override {
    return autograd::linear(x, weight.weight(), bias, y);
  }
  [[nodiscard]] std::string_view name() const override { return "high precision"; }
};

}  // namespace

Tensor LinearKernel::recompute(const Variable& x, const Parameter& weight, const Weight& bias) const {
  const autograd::NoGrad no_grad;
  return apply(x, weight, bias).value();
}

Variable LinearKernel::apply_onto(const Variable&, const Parameter&, const Weight&, const Tensor&) const {
  QUENCH_FAIL(ErrorCode::unsupported, "{}: the product cannot be added to what is there", name());
}

std::shared_ptr<const LinearKernel> high_precision_linear_kernel() {
  static const auto kernel = std::make_shared<const HighPrecisionLinear>();
  return kernel;
}

}  // namespace quench::nn
