#pragma once
// On-policy distillation (Agarwal et al., 2023, GKD): some steps train on answers that the student samples.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "train/objective/objective.h"
#include "train/rollouts/rollout_ranks.h"

namespace quench {

struct OnPolicyOptions {
  double share = 1;        // share of steps, drawn by the seed of sampling and the step
  RolloutOptions rollout;  // one completion of each prompt
  std::int64_t micro_batch_size = 1;
  std::int64_t logged = 0;  // number of sampled_texts()
  RolloutRanks ranks;
};

// The loss of another objective on sampled answers, in its units. Further metrics: on_policy, 1 or 0, and in steps on
// samples completions/mean_length and completions/clipped_ratio, over all ranks.
class OnPolicyObjective final : public Objective {
 public:
  // `student` must outlive it. `tokenizer`: null on the meta device.
  OnPolicyObjective(const nn::CausalLm& student, std::unique_ptr<Objective> inner, OnPolicyOptions options,
                    std::shared_ptr<const Tokenizer> tokenizer);

  [[nodiscard]] std::vector<std::string> metric_names() const override;
  // Throws bad_config in a step whose data have no prompt.
  [[nodiscard]] std::vector<Batch> step_batches(std::vector<Batch> data, std::int64_t step) override;
  [[nodiscard]] SamplingBytes plan_batches(std::int64_t prompts) override;
  [[nodiscard]] bool failed_together() const noexcept override { return options_.ranks.failed_together; }
  [[nodiscard]] std::vector<SampledText> sampled_texts() const override { return texts_; }
  [[nodiscard]] std::int64_t units(const Batch& batch) const override { return inner_->units(batch); }
  void prepare(const ObjectiveInput& in) override { inner_->prepare(in); }
  [[nodiscard]] autograd::Variable loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                        const Tensor& metrics) override;
  [[nodiscard]] const nn::WeightOffloader* weight_offloader() const noexcept override {
    return inner_->weight_offloader();
  }
  [[nodiscard]] std::vector<double> reported(std::vector<double> means) const override;

 private:
  [[nodiscard]] bool samples_in(std::int64_t step) const;

  const nn::CausalLm& student_;
  std::unique_ptr<Objective> inner_;
  OnPolicyOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<SampledText> texts_;
  std::array<double, 3> figures_{};  // figures of the last step
};

}  // namespace quench
