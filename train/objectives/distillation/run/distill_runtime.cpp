#include "train/objectives/entries.h"

#include "train/model_folder/model_folder.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/objectives/distillation/run/distill_setup.h"
#include "train/objectives/distillation/run/target_setup.h"
#include "train/session/run_session.h"

namespace quench {
namespace {

class DistillationRun final : public RunObjective {
 public:
  DistillationRun(const RunSession& session, TargetsOfRun stored)
      : objective_(make_distillation(session.setup(), session.config(), session.ranks(), std::move(stored))),
        is_live_(distill_section(session.config())->targets.empty()) {}
  [[nodiscard]] Objective* training() noexcept override { return objective_.get(); }
  [[nodiscard]] bool has_second_logits() const noexcept override { return is_live_; }

 private:
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
  return std::make_unique<DistillationRun>(session, std::move(stored));
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
