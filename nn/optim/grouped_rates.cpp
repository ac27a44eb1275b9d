#include "nn/optim/grouped_rates.h"

namespace quench::nn {

GroupedRates::GroupedRates(std::unique_ptr<Optimizer> optimizer, std::vector<double> scales)
    : Optimizer(optimizer->parameters()), optimizer_(std::move(optimizer)), scales_(std::move(scales)) {
  QUENCH_CHECK(scales_.size() == parameters().size(), "GroupedRates: {} scales for {} parameters", scales_.size(),
               parameters().size());
}

void GroupedRates::step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) {
  for (std::size_t begin = part.begin, end = begin; begin < part.end; begin = end) {
    while (end < part.end && scales_[end] == scales_[begin]) ++end;
    optimizer_->step(lr * scales_[begin], step, grad_scale, {begin, end});
  }
}

}  // namespace quench::nn
