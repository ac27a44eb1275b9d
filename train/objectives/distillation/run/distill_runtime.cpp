#include "train/objectives/entries.h"

#include "train/model_folder/model_folder.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/objectives/distillation/run/distill_setup.h"
#include "train/objectives/distillation/run/on_policy.h"
#include "train/objectives/distillation/run/target_setup.h"
#include "train/rollouts/rollout_setup.h"

namespace quench {
namespace {

class DistillationRun final : public RunObjective {
 public:
  DistillationRun(const RunSession& session, TargetsOfRun stored, const ObjectiveInputs* inputs)
      : objective_(make_distillation(session.setup(), session.config(), session.ranks(), std::move(stored))),
        is_live_(distill_section(session.config())->targets.empty()) {
    if (distill_section(session.config())->on_policy > 0) sample_answers(session, inputs);
  }
  [[nodiscard]] Objective* training() noexcept override { return objective_.get(); }
  [[nodiscard]] bool has_second_logits() const noexcept override { return is_live_; }

 private:
  void sample_answers(const RunSession& session, const ObjectiveInputs* inputs) {
    const RunConfig& config = session.config();
    const DistillSection& distill = *distill_section(config);
    OnPolicyOptions options{.share = distill.on_policy,
                            .rollout = {.max_tokens = distill.max_completion_length,
                                        .sequence_tokens = config.data.seq_len,
                                        .sampling = {.temperature = distill.sampling_temperature,
                                                     .seed = static_cast<std::uint64_t>(config.training.seed)}},
                            .micro_batch_size = config.training.micro_batch_size,
                            .logged = distill.log_completions,
                            .ranks = rollout_ranks(session)};
    std::shared_ptr<const Tokenizer> tokenizer;
    if (inputs != nullptr) {
      tokenizer = inputs->data.tokenizer;
      QUENCH_CHECK_AS(ErrorCode::bad_config, tokenizer != nullptr,
                      "distill.on_policy samples texts, and token shards without a tokenizer have none; set "
                      "data.tokenizer");
      options.rollout.stop_tokens = rollout_stop_tokens(session, inputs->data);
    }
    objective_ = std::make_unique<OnPolicyObjective>(session.model(), std::move(objective_), std::move(options),
                                                     std::move(tokenizer));
  }

  std::unique_ptr<Objective> objective_;
  bool is_live_;
};

std::unique_ptr<RunObjective> make(const RunSession& session, const ObjectiveInputs* inputs) {
  TargetsOfRun stored;
  if (inputs != nullptr)
    distributed::together(session.ranks(), "teacher", [&] {
      const RunConfig& config = session.config();
      if (distill_section(config)->targets.empty())
        return require_teacher_tokenizer(config, inputs->data.tokenizer.get());
      stored = {.targets = open_targets(config, inputs->identity, *inputs->data.train,
                                        session.model_config().vocab_size, inputs->samples, inputs->checks),
                .data = inputs->data.train};
    });
  return std::make_unique<DistillationRun>(session, std::move(stored), inputs);
}

std::optional<nn::ModelConfig> second_model(const RunConfig& config, const nn::ModelConfig& own) {
  const DistillSection& distill = *distill_section(config);
  if (!distill.targets.empty()) return std::nullopt;
  return has_own_teacher(distill) ? own : read_model_config(distill.teacher);
}

void check_tokenizer(const RunConfig& config, const Tokenizer* tokenizer) {
  if (distill_section(config)->targets.empty()) require_teacher_tokenizer(config, tokenizer);
}

}  // namespace

const ObjectiveRuntime kDistillRuntime{.make = make, .check_tokenizer = check_tokenizer, .second_model = second_model};

}  // namespace quench
