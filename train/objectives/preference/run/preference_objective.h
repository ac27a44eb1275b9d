#pragma once
// Preference training: losses of pairs of answers over packed batches, computed on the device, so that no micro-batch
// waits for it (core/ops/loss/answer_loss.h).

#include <memory>

#include "core/ops/loss/answer_loss.h"
#include "distributed/ranks.h"
#include "train/objective/objective.h"

namespace quench {

// Log-probabilities of answers under a model that is not trained.
class ReferenceModel {
 public:
  virtual ~ReferenceModel() = default;
  // f64 [A] on the device of in.ids: sum over the targets of each sequence of the whole batch. Collective for sharded
  // models.
  [[nodiscard]] virtual Tensor answer_logps(const ObjectiveInput& in) = 0;
};

// The model's own base, without adapters and fake quantization, in high precision. `model` must outlive it.
class BaseReference final : public ReferenceModel {
 public:
  explicit BaseReference(nn::CausalLm& model) : model_(model) {}
  [[nodiscard]] Tensor answer_logps(const ObjectiveInput& in) override;

 private:
  nn::CausalLm& model_;
};

// f64 [A] on the device of in.ids: sum of log-probabilities over the targets of each sequence, without gradient.
// A part of a batch: of the whole one's sequences, summed over its ranks. Collective for sharded models.
[[nodiscard]] Tensor answer_logps(const nn::CausalLm& model, const ObjectiveInput& in);

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
  // `reference` is not used by losses without one, and may be null for them. All must outlive the objective.
  PreferenceObjective(const nn::CausalLm& model, const AnswerLossOptions& options, ReferenceModel* reference,
                      const distributed::Ranks& ranks);

  [[nodiscard]] std::vector<std::string> metric_names() const override;
  [[nodiscard]] std::int64_t units(const Batch& batch) const override;
  void prepare(const ObjectiveInput& in) override;
  [[nodiscard]] autograd::Variable loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                        const Tensor& metrics) override;
  [[nodiscard]] std::vector<double> reported(std::vector<double> means) const override;

 private:
  // Sums over all ranks, for AnswerLossArgs::divergence.
  [[nodiscard]] Tensor divergence(const AnswerLossArgs& args) const;

  const nn::CausalLm& model_;
  AnswerLossOptions options_;
  ReferenceModel* reference_;
  const distributed::Ranks& ranks_;
  Tensor reference_logps_;  // f64 [A] of the prepared batch, on its device; undefined without a reference
};

}  // namespace quench
