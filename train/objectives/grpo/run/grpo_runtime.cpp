#include "recipes/base_kernels.h"
#include "train/objectives/entries.h"
#include "train/objectives/grpo/run/best_of.h"
#include "train/objectives/grpo/run/grpo_objective.h"
#include "train/rollouts/rollout_setup.h"
#include "train/session/frozen_model.h"

namespace quench {
namespace {

Tensor row_losses(const nn::CausalLm& model, const ObjectiveInput& in, const nn::ForwardContext& context,
                  const LabelledRows& rows) {
  const autograd::NoGrad no_grad;
  Tensor losses;
  (void)model.head_loss(rows.select(model.hidden(in.ids, context)), rows.labels(), 1.0f, {}, &losses);
  return losses;
}

// The model without its adapters, or a copy of it at step 0.
ReferenceLosses make_reference(const RunSession& session) {
  nn::CausalLm& model = session.model();
  if (session.config().lora)
    return [&model](const ObjectiveInput& in, const LabelledRows& rows) {
      const recipes::BaseKernels base(model);
      return row_losses(model, in, in.context, rows);
    };
  const auto frozen = std::make_shared<FrozenModel>(
      make_frozen_model(session.config(), session.model_config(), {}, model.options().device, session.ranks()));
  return [frozen](const ObjectiveInput& in, const LabelledRows& rows) {
    return row_losses(*frozen->model, in, frozen->model->make_context(in.context.sequences, in.context.positions),
                      rows);
  };
}

class GrpoRun final : public RunObjective {
 public:
  GrpoRun(const RunSession& session, const ObjectiveInputs* inputs) {
    const RunConfig& config = session.config();
    const GrpoSection& section = *grpo_section(config);
    GrpoOptions options{.loss = {.type = section.loss_type,
                                 .level = section.importance_sampling_level,
                                 .beta = section.beta,
                                 .epsilon_low = section.epsilon,
                                 .epsilon_high = section.epsilon_high.value_or(section.epsilon),
                                 .max_completion_length = section.max_completion_length},
                        .advantages = {.scale = section.scale_rewards, .baseline = section.baseline},
                        .rollout = grpo_rollout(config),
                        .micro_batch_size = config.training.micro_batch_size,
                        .iterations = section.num_iterations,
                        .logged = section.log_completions,
                        .ranks = rollout_ranks(session)};
    std::shared_ptr<const Tokenizer> tokenizer;
    if (inputs != nullptr) {
      tokenizer = inputs->data.tokenizer;
      QUENCH_CHECK_AS(ErrorCode::bad_config, tokenizer != nullptr,
                      "grpo.rewards judge texts, and token shards without a tokenizer have none; set data.tokenizer");
      options.rollout.stop_tokens = rollout_stop_tokens(session, inputs->data);
    }
    RewardSet rewards(section);
    if (inputs != nullptr)
      distributed::together(session.ranks(), "rewards",
                            [&] { rewards.open(session.device(), session.model().options().dtype); });
    objective_.emplace(session.model(), std::move(options), std::move(rewards), std::move(tokenizer),
                       section.beta > 0 ? make_reference(session) : ReferenceLosses());
  }
  [[nodiscard]] Objective* training() noexcept override { return &*objective_; }

 private:
  std::optional<GrpoObjective> objective_;
};

std::optional<nn::ModelConfig> second_model(const RunConfig& config, const nn::ModelConfig& own) {
  return grpo_section(config)->beta > 0 ? std::optional(own) : std::nullopt;
}

}  // namespace

const ObjectiveRuntime kGrpoRuntime{
    .make = [](const RunSession& session, const ObjectiveInputs* inputs) -> std::unique_ptr<RunObjective> {
      return std::make_unique<GrpoRun>(session, inputs);
    },
    .second_model = second_model};

}  // namespace quench
