#include "nn/experts/expert_kernel.h"

namespace quench::nn {
namespace {

class HighPrecisionExperts final : public ExpertKernel {
 public:
  [[nodiscard]] Variable apply(const Variable& x, const Parameter& weight,
                               const autograd::TokenPermutation& rows) const override {
    return autograd::expert_linear(x, weight.weight(), rows);
  }
  [[nodiscard]] std::string_view name() const override { return "high precision"; }
};

}  // namespace

std::shared_ptr<const ExpertKernel> high_precision_expert_kernel() {
  static const auto kernel = std::make_shared<const HighPrecisionExperts>();
  return kernel;
}

}  // namespace quench::nn
