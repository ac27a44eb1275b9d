#pragma once
// Distillation (Hinton et al., 2015) from a teacher or from stored targets: logits of the student are made by chunks of
// rows.

#include <memory>
#include <optional>

#include "core/ops/loss/distillation_loss.h"
#include "train/objective/objective.h"
#include "train/objectives/distillation/run/hidden_states.h"
#include "train/objectives/distillation/run/target_source.h"

namespace quench {

struct DistillationOptions {
  Divergence divergence = Divergence::forward_kl;
  float temperature = 1.0f;
  float beta = 0.5f;       // weight of the teacher in the mixture of jensen_shannon
  float ratio = 1.0f;      // share of the divergence in the loss: (1 - ratio) CE + ratio T^2 D
  HiddenOptions hidden{};  // added to it; the teacher's hidden size is the student's
};

// In units of valid tokens. Metrics: divergence, cross_entropy (of the student and the labels), and with a loss on
// hidden states its mean over layers, hidden_states.
class DistillationObjective final : public Objective {
 public:
  // `student` must outlive it.
  DistillationObjective(const nn::CausalLm& student, std::unique_ptr<TargetSource> targets,
                        DistillationOptions options);

  [[nodiscard]] std::vector<std::string> metric_names() const override;
  void prepare(const ObjectiveInput& in) override;
  [[nodiscard]] autograd::Variable loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                        const Tensor& metrics) override;
  [[nodiscard]] const nn::WeightOffloader* weight_offloader() const noexcept override { return targets_->offloader(); }

 private:
  const nn::CausalLm& student_;
  std::unique_ptr<TargetSource> targets_;
  DistillationOptions options_;
  std::optional<TeacherStates> states_;  // hidden states of the teacher's layers; none: no loss on them
};

}  // namespace quench
