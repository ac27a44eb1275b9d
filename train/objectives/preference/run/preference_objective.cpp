#include "train/objectives/preference/run/preference_objective.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/row_loss.h"
#include "recipes/base_kernels.h"
#include "train/objective/labelled_rows.h"

namespace quench {
namespace {

// Order of the metrics of all losses; extra ones follow.
enum Metric : std::size_t {
  chosen_reward,
  rejected_reward,
  margin,
  accuracy,
  chosen_logp,
  rejected_logp,
  first_extra,  // orpo: nll_loss; kto: kl
  second_extra  // orpo: log_odds_chosen; kto: share of desirable records
};

std::span<const std::int32_t> labels_of(const Batch& batch, const SequenceRange& sequence) {
  return {batch.labels.data<std::int32_t>() + sequence.q_begin, static_cast<std::size_t>(sequence.q_length)};
}

double answer_logp(const Batch& batch, const SequenceRange& sequence, const float* losses) {
  const auto labels = labels_of(batch, sequence);
  double sum = 0;
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (labels[i] != kIgnoreLabel) sum -= static_cast<double>(losses[sequence.q_begin + static_cast<std::int64_t>(i)]);
  return sum;
}

// Labels with those of prompts before chosen answers.
Tensor labels_with_prompts(const Batch& batch) {
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

// Sums over a micro-batch.
struct PreferenceObjective::Terms {
  Terms(std::int64_t rows, std::size_t metric_count)
      : derivatives(static_cast<std::size_t>(rows)), metrics(metric_count) {}

  // d loss / d logp of each target of the answer.
  void add_derivative(const Batch& batch, const SequenceRange& sequence, double d_logp) {
    const auto labels = labels_of(batch, sequence);
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (labels[i] != kIgnoreLabel) derivatives[static_cast<std::size_t>(sequence.q_begin) + i] -= d_logp;
  }

  double loss = 0;
  std::vector<double> derivatives;  // d loss / d cross-entropy, by row
  std::vector<double> metrics;
};

std::vector<double> answer_logps(const nn::CausalLm& model, const ObjectiveInput& in) {
  const autograd::NoGrad no_grad;
  const LabelledRows rows(in.batch.labels, in.ids.device());
  Tensor losses;
  (void)model.head_loss(rows.select(model.hidden(in.ids, in.context)), rows.labels(), 1.0f, {}, &losses);
  std::vector<double> sums;
  if (losses.device().is_meta()) return std::vector<double>(in.batch.sequences.size());
  const std::vector<float> all = rows.spread(losses);
  for (const SequenceRange& sequence : in.batch.sequences) sums.push_back(answer_logp(in.batch, sequence, all.data()));
  return sums;
}

std::vector<double> BaseReference::answer_logps(const ObjectiveInput& in) {
  const recipes::BaseKernels base(model_);
  return quench::answer_logps(model_, in);
}

PreferenceObjective::PreferenceObjective(const nn::CausalLm& model, const PreferenceLossOptions& options,
                                         ReferenceModel* reference, const distributed::Ranks* ranks)
    : model_(model), options_(options), reference_(needs_reference(options.loss) ? reference : nullptr), ranks_(ranks) {
  QUENCH_CHECK(reference_ != nullptr || !needs_reference(options.loss), "preference loss {} without a reference model",
               enum_name(options.loss));
}

std::vector<std::string> PreferenceObjective::metric_names() const {
  std::vector<std::string> names = {"rewards/chosen",     "rewards/rejected", "rewards/margins",
                                    "rewards/accuracies", "logps/chosen",     "logps/rejected"};
  if (options_.loss == PreferenceLoss::orpo) names.insert(names.end(), {"nll_loss", "log_odds_chosen"});
  if (options_.loss == PreferenceLoss::kto) names.insert(names.end(), {"kl", "count/chosen"});
  return names;
}

std::int64_t PreferenceObjective::units(const Batch& batch) const {
  return std::ssize(batch.pairs);
}

void PreferenceObjective::prepare(const ObjectiveInput& in) {
  reference_logps_.assign(in.batch.sequences.size(), 0.0);
  if (reference_ != nullptr) reference_logps_ = reference_->answer_logps(in);
}

autograd::Variable PreferenceObjective::loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                             const Tensor& metrics) {
  const Batch& batch = in.batch;
  const Device device = in.ids.device();
  const LabelledRows rows(
      options_.loss == PreferenceLoss::orpo && !device.is_meta() ? labels_with_prompts(batch) : batch.labels, device);
  const auto derivatives = [&](const Tensor& losses, const Tensor& value) {
    if (device.is_meta()) return Tensor::empty_like(losses);
    const std::vector<float> all = rows.spread(losses);
    Terms terms(std::ssize(all), metric_names().size());
    if (options_.loss == PreferenceLoss::kto)
      add_labels(batch, all.data(), terms);
    else
      add_pairs(batch, all.data(), terms);
    if (options_.loss == PreferenceLoss::orpo) add_prompts(batch, all.data(), terms);
    const auto scaled = [scale](const std::vector<double>& values) {
      std::vector<float> results;
      for (const double x : values) results.push_back(static_cast<float>(x * static_cast<double>(scale)));
      return results;
    };
    const auto tensor = [](const std::vector<float>& values) {
      return Tensor::from_values<float>({std::ssize(values)}, values);
    };
    Tensor(value).copy_from(tensor(scaled({terms.loss})));
    if (metrics.defined()) Tensor(metrics).copy_from(tensor(scaled(terms.metrics)));
    return tensor(rows.select(scaled(terms.derivatives))).to(device);
  };
  const autograd::Variable hidden = rows.select(model_.hidden(in.ids, in.context));
  const std::unique_ptr<HeadGemms> gemms = model_.head_gemms();  // gathers a sharded head
  return autograd::lm_head_row_loss(hidden, model_.head_weight(), rows.labels(), derivatives, options, gemms.get());
}

AnswerScore PreferenceObjective::score(const Batch& batch, std::size_t sequence, const float* losses) const {
  const SequenceRange& range = batch.sequences[sequence];
  const auto labels = labels_of(batch, range);
  return {.logp = answer_logp(batch, range, losses),
          .reference = reference_logps_.at(sequence),
          .tokens = std::ssize(labels) - std::ranges::count(labels, kIgnoreLabel)};
}

void PreferenceObjective::add_pairs(const Batch& batch, const float* losses, Terms& terms) const {
  for (const AnswerPair& pair : batch.pairs) {
    const PairLoss one =
        pair_loss(options_, score(batch, pair.sequence, losses), score(batch, pair.sequence + 1, losses));
    terms.loss += one.loss;
    terms.add_derivative(batch, batch.sequences[pair.sequence], one.d_chosen);
    terms.add_derivative(batch, batch.sequences[pair.sequence + 1], one.d_rejected);
    terms.metrics[chosen_reward] += one.chosen_reward;
    terms.metrics[rejected_reward] += one.rejected_reward;
    terms.metrics[margin] += one.chosen_reward - one.rejected_reward;
    terms.metrics[accuracy] += one.chosen_reward > one.rejected_reward ? 1 : 0;
    terms.metrics[chosen_logp] += one.chosen_logp;
    terms.metrics[rejected_logp] += one.rejected_logp;
    if (options_.loss == PreferenceLoss::orpo) terms.metrics[second_extra] += one.log_odds;
  }
}

// Mean cross-entropy of prompts and chosen answers, once per pair.
void PreferenceObjective::add_prompts(const Batch& batch, const float* losses, Terms& terms) const {
  double sum = 0;
  std::int64_t tokens = 0;
  const auto each_row = [&](const auto& visit) {
    for (const AnswerPair& pair : batch.pairs) {
      const SequenceRange& chosen = batch.sequences[pair.sequence];
      for (std::int64_t i = chosen.q_begin; i < chosen.q_begin + chosen.q_length; ++i) visit(i);
    }
  };
  each_row([&](std::int64_t row) {
    sum += static_cast<double>(losses[row]);
    ++tokens;
  });
  if (tokens == 0) return;
  const auto pairs = static_cast<double>(batch.pairs.size());
  const double mean = sum / static_cast<double>(tokens);
  terms.loss += pairs * mean;
  terms.metrics[first_extra] += pairs * mean;
  each_row([&](std::int64_t row) {
    terms.derivatives[static_cast<std::size_t>(row)] += pairs / static_cast<double>(tokens);
  });
}

double PreferenceObjective::divergence(const Batch& batch, const float* losses) const {
  double sum = 0;
  auto count = static_cast<double>(batch.pairs.size());
  for (const AnswerPair& pair : batch.pairs) {
    const AnswerScore other = score(batch, pair.sequence + 1, losses);
    sum += other.logp - other.reference;
  }
  if (ranks_ != nullptr) {
    const Tensor sums = Tensor::from_values<double>({2}, std::array{sum, count});
    ranks_->host->all_reduce(sums, distributed::ReduceOp::sum, "divergence").wait();
    sum = sums.data<double>()[0];
    count = sums.data<double>()[1];
  }
  return kto_divergence(sum, static_cast<std::int64_t>(count));
}

void PreferenceObjective::add_labels(const Batch& batch, const float* losses, Terms& terms) const {
  const double kl = divergence(batch, losses);
  for (const AnswerPair& pair : batch.pairs) {
    const AnswerScore answer = score(batch, pair.sequence, losses);
    const LabelLoss one = label_loss(options_, answer, pair.desirable, kl);
    terms.loss += one.loss;
    terms.add_derivative(batch, batch.sequences[pair.sequence], one.d_logp);
    terms.metrics[pair.desirable ? chosen_reward : rejected_reward] += one.reward;
    terms.metrics[pair.desirable ? chosen_logp : rejected_logp] += answer.logp;
    const double above = one.reward - options_.beta * kl;
    terms.metrics[accuracy] += (pair.desirable ? above > 0 : above < 0) ? 1 : 0;
    terms.metrics[first_extra] += kl;
    terms.metrics[second_extra] += pair.desirable ? 1 : 0;
  }
}

std::vector<double> PreferenceObjective::reported(std::vector<double> means) const {
  if (options_.loss != PreferenceLoss::kto || means.empty()) return means;
  // Means over all records to means over those with the label; NaN without one.
  const auto of = [](double sum, double share) {
    return share > 1e-9 ? sum / share : std::numeric_limits<double>::quiet_NaN();
  };
  const double share = means[second_extra];
  for (const std::size_t i : {chosen_reward, chosen_logp}) means[i] = of(means[i], share);
  for (const std::size_t i : {rejected_reward, rejected_logp}) means[i] = of(means[i], 1 - share);
  means[margin] = means[chosen_reward] - means[rejected_reward];
  return means;
}

}  // namespace quench
