#pragma once
// Distillation (Hinton et al., 2015) over the full vocabulary: logits of student and teacher are made by chunks of
// rows.

#include <memory>
#include <optional>

#include "core/ops/loss/distillation_loss.h"
#include "train/objective/objective.h"
#include "train/objectives/distillation/run/hidden_states.h"
#include "train/objectives/distillation/run/teacher.h"

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
  DistillationObjective(const nn::CausalLm& student, std::unique_ptr<Teacher> teacher, DistillationOptions options);

  [[nodiscard]] std::vector<std::string> metric_names() const override;
  void prepare(const ObjectiveInput& in) override;
  [[nodiscard]] autograd::Variable loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                        const Tensor& metrics) override;
  [[nodiscard]] const nn::WeightOffloader* weight_offloader() const noexcept override { return teacher_->offloader(); }

 private:
  const nn::CausalLm& student_;
  std::unique_ptr<Teacher> teacher_;
  DistillationOptions options_;
  Tensor hidden_;                        // hidden states of the teacher, from prepare() to loss()
  std::optional<TeacherStates> states_;  // the same, of layers; none: no loss on them
};

}  // namespace quench
