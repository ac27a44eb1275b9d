#include "train/run/expert_watch.h"

#include "train/step/update_expert_biases.h"

namespace quench {

ExpertWatch::ExpertWatch(const RunSession& session)
    : session_(session), bias_speed_(router_bias_speed(session.config(), session.model_config())) {
  const nn::ModelConfig& model = session.model_config();
  if (model.experts.count > 0)
    load_ = std::make_unique<nn::ExpertLoad>(model.all_layers(), model.experts.count, session.device());
}

void ExpertWatch::begin_step(bool is_logged) {
  is_logged_ = load_ != nullptr && is_logged;
  counts_ = is_logged_ || bias_speed_ > 0;
  if (counts_) load_->reset();
  session_.step()->watch_experts(counts_ ? load_.get() : nullptr);
}

std::optional<ExpertMetrics> ExpertWatch::end_step(std::int64_t step) {
  session_.step()->watch_experts(nullptr);
  if (counts_)
    for (const Tensor& sum : load_->sums())
      distributed::all_reduce(*session_.ranks().world, sum, distributed::ReduceOp::sum, "load of the experts");
  if (!is_logged_) return std::nullopt;
  return ExpertMetrics{.step = step, .layers = load_->read()};
}

void ExpertWatch::update_biases() {
  if (bias_speed_ > 0) update_expert_biases(session_.model(), *load_, bias_speed_);
}

}  // namespace quench
