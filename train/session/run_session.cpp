#include "train/session/run_session.h"

#include "train/session/adapter_setup.h"
#include "train/session/optimizer_setup.h"
#include "train/session/parallel_setup.h"

namespace quench {

RunSession::RunSession(ResolvedConfig config, RunSessionOptions options)
    : config_(std::move(config)),
      device_(options.device),
      target_(options.target.value_or(options.device)),
      ranks_(std::move(options.ranks)),
      setup_(
          build_model(config_, device_, target_,
                      ranks_->mesh.pipeline == 1
                          ? run_sharding(*ranks_)
                          : run_sharding(*ranks_, config_, options.model ? *options.model : run_model_config(config_)),
                      options.model)) {
  if (ranks_->mesh.pipeline > 1)
    stages_ =
        std::make_unique<distributed::StageExchange>(*ranks_, static_cast<int>(config_->parallel.chunks()), device_);
}

void RunSession::load_base() {
  if (setup_.adapters && !device_.is_meta()) base_hash_ = fill_adapted(setup_, config_, *ranks_);
}

void RunSession::share() {
  sharded_ = share_model(model(), *ranks_, config_, setup_.base.get());
}

void RunSession::add_optimizer() {
  step_.reset();
  optimizer_ = make_optimizer(model(), config_, *ranks_);
}

void RunSession::add_objective(const ObjectiveInputs* inputs) {
  objective_ = make_objective(*this, inputs);
}

void RunSession::add_step() {
  const TrainingSection& training = config().training;
  const OptimizerSection& state = config().optimizer;
  step_ = std::make_unique<TrainStep>(model(), *optimizer_,
                                      TrainStepOptions{.recompute = recompute_level(training.activation_checkpoint),
                                                       .loss = loss(),
                                                       .activations = activation_policy(config(), model_config()),
                                                       .state_offload_ratio = state.offload_ratio,
                                                       .state_streamed = state.offload_streamed,
                                                       .max_norm = training.max_norm,
                                                       .update_in_backward = state.update_in_backward,
                                                       .sharded = sharded_.get(),
                                                       .ranks = ranks_.get(),
                                                       .stages = stages_.get(),
                                                       .router_terms = router_terms(config(), model_config()),
                                                       .objective = objective_ ? objective_->training() : nullptr,
                                                       .scaling = setup_.scaling.get()});
}

void RunSession::fill() {
  if (!setup_.adapters) fill_model(model(), config_);
  if (optimizer_) optimizer_->refresh_master();
}

void RunSession::set_batch(const RunConfig& fitted) {
  config_ = ResolvedConfig(fitted, config_.choice().value_or(RecipeChoice()));
}

bool RunSession::follow_recipe(std::int64_t step, std::int64_t steps) {
  const bool high_precision = quench::in_high_precision(config_, step, steps);
  if (high_precision == in_high_precision_) return false;
  in_high_precision_ = high_precision;
  setup_.conversion = apply_run_recipe(setup_, config_, target_, high_precision);
  return true;
}

}  // namespace quench
