#pragma once
// Distillation from stored targets: a teacher's most probable tokens, without the teacher.

#include <memory>

#include "train/objectives/distillation/run/distillation.h"
#include "train/objectives/distillation/run/stored_targets.h"

namespace quench {

struct TargetsOfRun {
  std::shared_ptr<const StoredTargets> targets;
  std::shared_ptr<const Dataset> data;  // dataset of the batches
};

// In units of valid tokens; metrics of DistillationObjective. Divergences are those of top_k_distillation_loss.h.
class StoredDistillationObjective final : public Objective {
 public:
  // `student` must outlive it. `of_run`: members are null in an estimate. `k`: tokens of a target.
  StoredDistillationObjective(const nn::CausalLm& student, TargetsOfRun of_run, std::int64_t k,
                              const DistillationOptions& options)
      : student_(student), of_run_(std::move(of_run)), k_(k), options_(options) {}

  [[nodiscard]] std::vector<std::string> metric_names() const override { return {"divergence", "cross_entropy"}; }
  void prepare(const ObjectiveInput& in) override;
  [[nodiscard]] autograd::Variable loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                        const Tensor& metrics) override;

 private:
  const nn::CausalLm& student_;
  TargetsOfRun of_run_;
  std::int64_t k_;
  DistillationOptions options_;
  Tensor ids_, log_probs_, tail_;  // from prepare() to loss()
};

}  // namespace quench
