#include "nn/linear_kernel.h"

#include "autograd/functions.h"

namespace quench::nn {
namespace {

class HighPrecisionLinear final : public LinearKernel {
 public:
  [[nodiscard]] Variable apply(const Variable& x, const Parameter& weight, const Variable& bias) const override {
    return autograd::linear(x, weight.variable, bias);
  }
  [[nodiscard]] std::string_view name() const override { return "high precision"; }
};

}  // namespace

std::shared_ptr<const LinearKernel> high_precision_linear_kernel() {
  static const auto kernel = std::make_shared<const HighPrecisionLinear>();
  return kernel;
}

}  // namespace quench::nn
