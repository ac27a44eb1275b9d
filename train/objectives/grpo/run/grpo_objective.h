#pragma once
// Policy optimization on groups of sampled completions: samples, rewards and advantages of a step, and the loss of its
// micro-batches (policy_loss.h). Old log-probabilities are those of the engine that has sampled.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train/objective/labelled_rows.h"
#include "train/objective/objective.h"
#include "train/objectives/grpo/rewards/reward_set.h"
#include "train/objectives/grpo/run/policy_samples.h"

namespace quench {

// Cross-entropies f32 [R] of the labelled rows under a model that is not trained.
using ReferenceLosses = std::function<Tensor(const ObjectiveInput& in, const LabelledRows& rows)>;

struct GrpoOptions {
  PolicyLossOptions loss;
  AdvantageOptions advantages;
  RolloutOptions rollout;
  std::int64_t micro_batch_size = 1;
  std::int64_t iterations = 1;  // steps over the same samples
  std::int64_t logged = 0;      // number of sampled_texts()
  RolloutRanks ranks;
};

// In units of completions (grpo, dr_grpo) or of their tokens (dapo). Each rank samples for its own prompts and judges
// them. Metrics over all ranks, named as TRL's: reward, reward_std (of all rewards of the step), frac_reward_zero_std,
// completions/mean_length, completions/clipped_ratio (share not ended by a stop token), clip_ratio/low_mean,
// clip_ratio/high_mean and clip_ratio/region_mean, with a reference kl, rewards/NAME/mean and rewards/NAME/std of each
// reward; and sampling_logp_difference, the mean of |logp - old|, and frac_groups_skipped, of groups with a missing
// reward, which are left out. Groups of equal rewards have advantages 0.
class GrpoObjective final : public Objective {
 public:
  // `reference`: empty without divergence. `model` must outlive the objective. `tokenizer`: null on the meta device.
  GrpoObjective(const nn::CausalLm& model, GrpoOptions options, RewardSet rewards,
                std::shared_ptr<const Tokenizer> tokenizer, ReferenceLosses reference);

  [[nodiscard]] std::vector<std::string> metric_names() const override;
  [[nodiscard]] std::vector<Batch> step_batches(std::vector<Batch> data, std::int64_t step) override;
  [[nodiscard]] SamplingBytes plan_batches(std::int64_t prompts) override;
  [[nodiscard]] bool failed_together() const noexcept override { return options_.ranks.failed_together; }
  [[nodiscard]] std::vector<SampledText> sampled_texts() const override { return texts_; }
  [[nodiscard]] std::string state(std::int64_t step) const override;
  void restore(std::string_view state) override;
  [[nodiscard]] std::int64_t units(const Batch& batch) const override;
  void prepare(const ObjectiveInput& in) override;
  [[nodiscard]] autograd::Variable loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                        const Tensor& metrics) override;
  [[nodiscard]] std::vector<double> reported(std::vector<double> means) const override;

 private:
  // Completions of the data's prompts, judged, into rollout_.
  void sample(const std::vector<Batch>& data, std::int64_t step);
  // Host memory: f32 [R] on the device of `losses`, and `value` and `metrics`, of the samples of in.batch.
  [[nodiscard]] Tensor derivatives(const ObjectiveInput& in, const LabelledRows& rows, float scale,
                                   const Tensor& losses, Tensor value, Tensor metrics) const;

  const nn::CausalLm& model_;
  GrpoOptions options_;
  RewardSet rewards_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  ReferenceLosses reference_;
  PolicySamples rollout_;
  std::int64_t rollout_step_ = 0;                  // that rollout_ was sampled in; 0: none
  std::int64_t planned_judge_ = -1;                // SamplingBytes::judge; -1: not planned
  std::vector<SampledText> texts_;                 // texts of rollout_
  std::vector<std::vector<std::size_t>> members_;  // samples of each micro-batch
  Tensor reference_losses_;                        // cross-entropies of the prepared micro-batch, on the host
};

}  // namespace quench
