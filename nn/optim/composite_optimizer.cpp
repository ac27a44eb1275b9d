#include "nn/optim/composite_optimizer.h"

namespace quench::nn {

CompositeOptimizer::CompositeOptimizer(const std::vector<Parameter*>& all,
                                       const std::function<bool(const Parameter&)>& belongs, const Make& first,
                                       const Make& second)
    : Optimizer(all) {
  std::vector<Parameter*> members[kParts];
  for (Parameter* p : parameters()) {
    for (int which = 0; which < kParts; ++which) before_[which].push_back(members[which].size());
    members[belongs(*p) ? 0 : 1].push_back(p);
  }
  for (int which = 0; which < kParts; ++which) before_[which].push_back(members[which].size());
  parts_[0] = first(members[0]);
  parts_[1] = second(members[1]);
}

void CompositeOptimizer::step(double lr, std::int64_t step, const Tensor& grad_scale, ParameterRange part) {
  for (int which = 0; which < kParts; ++which) parts_[which]->step(lr, step, grad_scale, within(which, part));
}

void CompositeOptimizer::refresh_master() {
  for (const std::unique_ptr<Optimizer>& part : parts_) part->refresh_master();
}

std::vector<Optimizer::StateTensor> CompositeOptimizer::state() {
  std::vector<StateTensor> all = parts_[0]->state();
  for (StateTensor& tensor : parts_[1]->state()) all.push_back(std::move(tensor));
  return all;
}

std::vector<ParameterState> CompositeOptimizer::parameter_states() {
  std::vector<ParameterState> states[kParts];
  for (int which = 0; which < kParts; ++which) states[which] = parts_[which]->parameter_states();
  std::vector<ParameterState> all;
  for (std::size_t i = 0; i < parameters().size(); ++i) {
    const int which = before_[0][i] != before_[0][i + 1] ? 0 : 1;
    all.push_back(std::move(states[which][before_[which][i]]));
  }
  return all;
}

}  // namespace quench::nn
