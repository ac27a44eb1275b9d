#include "train/objectives/grpo/run/grpo_objective.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "autograd/row_loss.h"
#include "core/device/determinism.h"
#include "core/memory/allocator.h"

namespace quench {
namespace {

// Sums over tokens, then their number, which is not reported, then figures of the step; those of each reward follow.
constexpr std::array<const char*, 12> kNames = {"kl",
                                                "clip_ratio/low_mean",
                                                "clip_ratio/high_mean",
                                                "clip_ratio/region_mean",
                                                "sampling_logp_difference",
                                                "tokens",
                                                "reward",
                                                "reward_std",
                                                "frac_reward_zero_std",
                                                "completions/mean_length",
                                                "completions/clipped_ratio",
                                                "frac_groups_skipped"};
constexpr std::size_t kTokenSums = 5;

}  // namespace

GrpoObjective::GrpoObjective(const nn::CausalLm& model, GrpoOptions options, RewardSet rewards,
                             std::shared_ptr<const Tokenizer> tokenizer, ReferenceLosses reference)
    : model_(model),
      options_(std::move(options)),
      rewards_(std::move(rewards)),
      tokenizer_(std::move(tokenizer)),
      reference_(std::move(reference)) {}

std::vector<std::string> GrpoObjective::metric_names() const {
  std::vector<std::string> names = {kNames.begin(), kNames.end()};
  for (const std::string& reward : rewards_.names()) {
    names.push_back("rewards/" + reward + "/mean");
    names.push_back("rewards/" + reward + "/std");
  }
  return names;
}

void GrpoObjective::sample(const std::vector<Batch>& data, std::int64_t step) {
  rollout_step_ = 0;
  std::vector<RolloutPrompt> prompts;
  std::vector<std::vector<Completion>> groups;
  options_.ranks.with_whole_weights([&] {
    prompts = rollout_prompts(data, *tokenizer_);
    groups = sample_completions(model_, prompts, options_.rollout, step, *tokenizer_);
  });
  RewardScores scores;
  options_.ranks.together("rewards", [&] {
    std::vector<RewardSample> judged;
    for (std::size_t p = 0; p < prompts.size(); ++p)
      for (const Completion& completion : groups[p])
        judged.push_back({prompts[p].text, completion.text, prompts[p].record});
    scores = rewards_.score(judged);
  });
  texts_.clear();
  for (std::size_t p = 0, at = 0; p < prompts.size(); ++p)
    for (const Completion& completion : groups[p]) {
      if (std::ssize(texts_) == options_.logged) break;
      SampledText& text = texts_.emplace_back();
      text.prompt = prompts[p].text;
      text.text = completion.text;
      text.tokens = completion.tokens;
      text.figures = {{"reward", scores.total[at]}, {"length", completion.tokens.size()}, {"ended", completion.ended}};
      if (const std::vector<std::string> names = rewards_.names(); names.size() > 1)
        for (std::size_t r = 0; r < names.size(); ++r)
          text.figures.emplace_back("rewards/" + names[r], scores.parts[r][at]);
      ++at;
    }
  rollout_ = judged_samples(prompts, std::move(groups), scores, options_.advantages, options_.ranks);
  rollout_step_ = step;
}

SamplingBytes GrpoObjective::plan_batches(std::int64_t prompts) {
  const Device device = model_.options().device;
  const Allocator& plan = Allocator::of(device);
  SamplingBytes bytes;
  if (planned_judge_ < 0) {
    const std::int64_t before = plan.stats().current;
    rewards_.open(device, model_.options().dtype);
    planned_judge_ = plan.stats().current - before;
  }
  bytes.judge = planned_judge_;
  bytes.gathered =
      options_.ranks.plan_whole_weights([&] { bytes.cache = plan_completions(model_, prompts, options_.rollout); });
  rewards_.plan(prompts * options_.rollout.generations, options_.rollout.sequence_tokens + 1);
  return bytes;
}

std::vector<Batch> GrpoObjective::step_batches(std::vector<Batch> data, std::int64_t step) {
  const std::int64_t first = step - (step - 1) % options_.iterations;
  if (first == step)
    sample(data, step);
  else
    texts_.clear();
  QUENCH_CHECK_AS(ErrorCode::corrupt, rollout_step_ == first,
                  "step {} trains on the completions of step {}, which the checkpoint does not hold", step, first);
  std::vector<RolloutSequence> sequences;
  for (const PolicySample& sample : rollout_.samples) sequences.push_back({sample.prompt, sample.completion.tokens});
  RolloutBatches packed = pack_rollouts(sequences, options_.micro_batch_size, options_.rollout.sequence_tokens);
  options_.ranks.even_out(packed);
  members_ = std::move(packed.members);
  return std::move(packed.batches);
}

std::string GrpoObjective::state(std::int64_t step) const {
  const bool is_read = rollout_step_ > 0 && step % options_.iterations != 0;
  return is_read ? write_samples(rollout_, rollout_step_, options_.ranks) : std::string();
}

void GrpoObjective::restore(std::string_view state) {
  rollout_step_ = 0;
  texts_.clear();
  if (state.empty()) return;
  StoredSamples stored = read_samples(state, options_.ranks);
  rollout_ = std::move(stored.samples);
  rollout_step_ = stored.step;
}

std::int64_t GrpoObjective::units(const Batch& batch) const {
  return options_.loss.type == PolicyLossType::dapo ? batch.valid_tokens : std::ssize(batch.sequences);
}

void GrpoObjective::prepare(const ObjectiveInput& in) {
  reference_losses_ = Tensor();
  if (!reference_) return;
  const Tensor losses = reference_(in, LabelledRows(in.batch.labels, in.ids.device()));
  if (!losses.device().is_meta()) reference_losses_ = losses.to(Device{});
}

autograd::Variable GrpoObjective::loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                       const Tensor& metrics) {
  const LabelledRows rows(in.batch.labels, in.ids.device());
  const autograd::Variable hidden = rows.select(model_.hidden(in.ids, in.context));
  const std::unique_ptr<HeadGemms> gemms = model_.head_gemms();
  LmHeadLossOptions with = options;
  with.f32_logits = with.f32_logits || batch_invariant();  // as the engine's logits
  return autograd::lm_head_row_loss(
      hidden, model_.head_weight(), rows.labels(),
      [&](const Tensor& losses, const Tensor& value) { return derivatives(in, rows, scale, losses, value, metrics); },
      with, gemms.get());
}

Tensor GrpoObjective::derivatives(const ObjectiveInput& in, const LabelledRows& rows, float scale, const Tensor& losses,
                                  Tensor value, Tensor metrics) const {
  if (losses.device().is_meta()) return Tensor::empty_like(losses);
  const Tensor host = losses.to(Device{});
  const Tensor factors = Tensor::zeros(host.shape(), DType::f32);
  const std::vector<std::size_t>& members = members_.at(static_cast<std::size_t>(in.batch.first_sample));
  double sum = 0;
  std::array<double, kTokenSums + 1> sums{};
  for (std::size_t m = 0; m < members.size(); ++m) {
    const PolicySample& sample = rollout_.samples[members[m]];
    const SequenceRange& sequence = in.batch.sequences[m];
    const std::int64_t count = std::ssize(sample.completion.tokens);
    const std::int64_t end = sequence.q_begin + sequence.q_length;
    const std::int64_t first = rows.selected_range(end - count, end).first;
    const auto logps_in = [&](const Tensor& values) {
      std::vector<double> logps(static_cast<std::size_t>(count));
      for (std::int64_t t = 0; t < count; ++t)
        logps[static_cast<std::size_t>(t)] = -static_cast<double>(values.data<float>()[first + t]);
      return logps;
    };
    const std::vector<double> logps = logps_in(host);
    std::vector<double> reference;
    if (reference_losses_.defined()) reference = logps_in(reference_losses_);
    const PolicyTerms terms = policy_loss(
        options_.loss,
        {.logps = logps, .old = sample.completion.logps, .reference = reference, .advantage = sample.advantage});
    sum += terms.loss;
    const std::array<double, kTokenSums + 1> more = {terms.divergence,   terms.clipped_low,
                                                     terms.clipped_high, terms.clipped_low + terms.clipped_high,
                                                     terms.difference,   static_cast<double>(count)};
    for (std::size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
    // By cross-entropies, which are negative log-probabilities.
    for (std::int64_t t = 0; t < count; ++t)
      factors.data<float>()[first + t] =
          static_cast<float>(-terms.derivatives[static_cast<std::size_t>(t)] * static_cast<double>(scale));
  }
  const auto scaled = [&](double x) { return static_cast<float>(x * static_cast<double>(scale)); };
  value.copy_from(Tensor::from_values<float>({1}, std::array{scaled(sum)}));
  if (metrics.defined()) {
    std::vector<float> values(static_cast<std::size_t>(metrics.numel()), 0.0f);
    std::ranges::transform(sums, values.begin(), scaled);
    metrics.copy_from(Tensor::from_values<float>({std::ssize(values)}, values));
  }
  return factors.to(losses.device());
}

std::vector<double> GrpoObjective::reported(std::vector<double> means) const {
  if (means.empty()) return means;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const double tokens = means[kTokenSums];
  for (std::size_t i = 0; i < kTokenSums; ++i) means[i] = tokens > 0 ? means[i] / tokens : kNone;
  if (!reference_) means[0] = kNone;
  const RolloutFigures& of = rollout_.figures;
  const std::array<double, 7> figures = {kNone, of.reward, of.reward_std, of.zero_std, of.length, of.cut, of.skipped};
  std::ranges::copy(figures, means.begin() + kTokenSums);
  std::size_t next = kNames.size();
  for (std::size_t r = 0; r < of.part_means.size(); ++r) {
    means[next++] = of.part_means[r];
    means[next++] = of.part_stds[r];
  }
  return means;
}

}  // namespace quench
