#include "train/objectives/preference/run/preference_objective.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/row_loss.h"
#include "core/ops/loss/answer_loss_names.h"
#include "recipes/base_kernels.h"
#include "train/objective/labelled_rows.h"
#include "train/objectives/preference/run/answer_index.h"

namespace quench {
namespace {

// Adds up a part's sums over answers. Nothing for a whole batch.
Tensor over_parts(const Tensor& sums, const Batch& batch, const nn::CausalLm& model) {
  if (batch.part) model.sequence_exchange()->sum(sums);
  return sums;
}

// Labels with those of prompts before chosen answers.
Tensor labels_with_prompts(const Batch& batch) {
  if (batch.part) {
    const Tensor whole = labels_with_prompts(*batch.part->whole);
    std::vector<std::int32_t> labels;
    for (const std::int32_t token : batch.part->tokens) labels.push_back(whole.data<std::int32_t>()[token]);
    return Tensor::from_values<std::int32_t>({std::ssize(labels)}, labels);
  }
  const Tensor labels = Tensor::from_values<std::int32_t>(
      {batch.labels.numel()}, {batch.labels.data<std::int32_t>(), static_cast<std::size_t>(batch.labels.numel())});
  const std::int32_t* ids = batch.input_ids.data<std::int32_t>();
  for (const AnswerPair& pair : batch.pairs) {
    const SequenceRange& chosen = batch.sequences[pair.sequence];
    std::copy_n(ids + chosen.q_begin + 1, chosen.q_length - 1, labels.data<std::int32_t>() + chosen.q_begin);
  }
  return labels;
}

}  // namespace

Tensor answer_logps(const nn::CausalLm& model, const ObjectiveInput& in) {
  const autograd::NoGrad no_grad;
  const LabelledRows rows(in.batch.labels, in.ids.device());
  Tensor losses;
  (void)model.head_loss(rows.select(model.hidden(in.ids, in.context)), rows.labels(), 1.0f, {}, &losses);
  return over_parts(AnswerIndex(in.batch, rows, in.ids.device()).logps(losses), in.batch, model);
}

Tensor BaseReference::answer_logps(const ObjectiveInput& in) {
  const recipes::BaseKernels base(model_);
  return quench::answer_logps(model_, in);
}

PreferenceObjective::PreferenceObjective(const nn::CausalLm& model, const AnswerLossOptions& options,
                                         ReferenceModel* reference, const distributed::Ranks& ranks)
    : model_(model), options_(options), reference_(needs_reference(options.loss) ? reference : nullptr), ranks_(ranks) {
  QUENCH_CHECK(reference_ != nullptr || !needs_reference(options.loss), "preference loss {} without a reference model",
               enum_name(options.loss));
}

std::vector<std::string> PreferenceObjective::metric_names() const {
  std::vector<std::string> names = {"rewards/chosen",     "rewards/rejected", "rewards/margins",
                                    "rewards/accuracies", "logps/chosen",     "logps/rejected"};
  if (options_.loss == AnswerLoss::orpo) names.insert(names.end(), {"nll_loss", "log_odds_chosen"});
  if (options_.loss == AnswerLoss::kto) names.insert(names.end(), {"kl", "count/chosen"});
  return names;
}

std::int64_t PreferenceObjective::units(const Batch& batch) const {
  return is_first_part(batch) ? std::ssize(batch.pairs) : 0;
}

void PreferenceObjective::prepare(const ObjectiveInput& in) {
  reference_logps_ = reference_ != nullptr ? reference_->answer_logps(in) : Tensor();
}

autograd::Variable PreferenceObjective::loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                             const Tensor& metrics) {
  const Batch& batch = in.batch;
  const Device device = in.ids.device();
  const bool with_prompts = options_.loss == AnswerLoss::orpo;
  const LabelledRows rows(with_prompts && !device.is_meta() ? labels_with_prompts(batch) : batch.labels, device);
  const AnswerIndex answers(batch, rows, device, with_prompts);
  const auto derivatives = [&](const Tensor& losses, const Tensor& value) {
    const Tensor by_answer = Tensor::empty({answers.answers()}, DType::f64, device);
    AnswerLossArgs args{.options = options_,
                        .logps = over_parts(answers.logps(losses), batch, model_),
                        .reference = reference_logps_,
                        .tokens = answers.tokens(),
                        .pairs = answers.pairs(),
                        .scale = scale,
                        .value = value,
                        .metrics = metrics,
                        .derivatives = by_answer};
    if (options_.loss == AnswerLoss::kto) args.divergence = divergence(args);
    if (with_prompts) {
      args.prompts = over_parts(answers.prompt_logps(losses), batch, model_);
      args.prompt_rows = answers.prompt_rows();
    }
    answer_loss(args);
    if (!is_first_part(batch)) {  // all parts have the same values
      Tensor(value).zero();
      if (metrics.defined()) Tensor(metrics).zero();
    }
    const Tensor factors = Tensor::empty_like(losses);
    const auto pairs = static_cast<double>(batch.pairs.size()), prompts = static_cast<double>(answers.prompt_rows());
    answer_factors({.owners = answers.owners(),
                    .derivatives = by_answer,
                    .prompts = answers.prompts(),
                    .prompt_share = prompts > 0 ? pairs / prompts : 0.0,
                    .scale = scale,
                    .factors = factors});
    return factors;
  };
  const autograd::Variable hidden = rows.select(model_.hidden(in.ids, in.context));
  const std::unique_ptr<HeadGemms> gemms = model_.head_gemms();  // gathers a sharded head
  return autograd::lm_head_row_loss(hidden, model_.head_weight(), rows.labels(), derivatives, options, gemms.get());
}

Tensor PreferenceObjective::divergence(const AnswerLossArgs& args) const {
  const Tensor sums = Tensor::empty({2}, DType::f64, args.logps.device());
  answer_divergence({.logps = args.logps, .reference = args.reference, .pairs = args.pairs, .sums = sums});
  distributed::all_reduce(*ranks_.world, sums, distributed::ReduceOp::sum, "divergence");
  return sums;
}

std::vector<double> PreferenceObjective::reported(std::vector<double> means) const {
  if (options_.loss != AnswerLoss::kto || means.empty()) return means;
  // Means over all records to means over those with the label; NaN without one.
  const auto of = [](double sum, double share) {
    return share > 1e-9 ? sum / share : std::numeric_limits<double>::quiet_NaN();
  };
  const double share = means[kSecondExtra];
  for (const int m : {kChosenReward, kChosenLogp}) means[m] = of(means[m], share);
  for (const int m : {kRejectedReward, kRejectedLogp}) means[m] = of(means[m], 1 - share);
  means[kRewardMargin] = means[kChosenReward] - means[kRejectedReward];
  return means;
}

}  // namespace quench
