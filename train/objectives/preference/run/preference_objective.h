#pragma once
// Preference training: losses of pairs of answers (preference_loss.h) over packed batches.

#include <memory>

#include "distributed/ranks.h"
#include "train/objective/objective.h"
#include "train/objectives/preference/preference_loss.h"

namespace quench {

// Log-probabilities of answers under a model that is not trained.
class ReferenceModel {
 public:
  virtual ~ReferenceModel() = default;
  // Sum over the targets of each of in.batch.sequences. Collective for sharded models.
  [[nodiscard]] virtual std::vector<double> answer_logps(const ObjectiveInput& in) = 0;
};

// The model's own base, without adapters and fake quantization, in high precision. `model` must outlive it.
class BaseReference final : public ReferenceModel {
 public:
  explicit BaseReference(nn::CausalLm& model) : model_(model) {}
  [[nodiscard]] std::vector<double> answer_logps(const ObjectiveInput& in) override;

 private:
  nn::CausalLm& model_;
};

// Sum of log-probabilities over the targets of each sequence, without gradient. Collective for sharded models.
[[nodiscard]] std::vector<double> answer_logps(const nn::CausalLm& model, const ObjectiveInput& in);

// In units of pairs; for kto, of records. Metrics are TRL's: rewards/chosen, rewards/rejected, rewards/margins,
// rewards/accuracies, logps/chosen, logps/rejected (means over tokens where the loss has them so); of orpo also
// nll_loss and log_odds_chosen; of kto kl and count/chosen (share of desirable records), where chosen and rejected are
// desirable and undesirable records, and an accurate one is a desirable record with a reward above that of the
// divergence, or an undesirable one below.
//
// Per micro-batch, over all ranks: the divergence of kto. Per micro-batch of a rank: the mean over tokens in orpo's
// cross-entropy of prompts and chosen answers, which counts as often as the micro-batch has pairs.
class PreferenceObjective final : public Objective {
 public:
  // `reference` is not used by losses without one, and may be null for them. `ranks`: null in a single process. All
  // must outlive the objective.
  PreferenceObjective(const nn::CausalLm& model, const PreferenceLossOptions& options, ReferenceModel* reference,
                      const distributed::Ranks* ranks);

  [[nodiscard]] std::vector<std::string> metric_names() const override;
  [[nodiscard]] std::int64_t units(const Batch& batch) const override;
  void prepare(const ObjectiveInput& in) override;
  [[nodiscard]] autograd::Variable loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                        const Tensor& metrics) override;
  [[nodiscard]] std::vector<double> reported(std::vector<double> means) const override;

 private:
  struct Terms;
  [[nodiscard]] AnswerScore score(const Batch& batch, std::size_t sequence, const float* losses) const;
  void add_pairs(const Batch& batch, const float* losses, Terms& terms) const;
  void add_prompts(const Batch& batch, const float* losses, Terms& terms) const;
  void add_labels(const Batch& batch, const float* losses, Terms& terms) const;
  [[nodiscard]] double divergence(const Batch& batch, const float* losses) const;

  const nn::CausalLm& model_;
  PreferenceLossOptions options_;
  ReferenceModel* reference_;
  const distributed::Ranks* ranks_;
  std::vector<double> reference_logps_;  // reference's log-probabilities of the prepared batch, by sequence
};

}  // namespace quench
