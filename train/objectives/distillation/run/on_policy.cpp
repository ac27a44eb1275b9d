#include "train/objectives/distillation/run/on_policy.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/number/random.h"

namespace quench {
namespace {

constexpr std::array<const char*, 3> kFigureNames = {"on_policy", "completions/mean_length",
                                                     "completions/clipped_ratio"};

}  // namespace

OnPolicyObjective::OnPolicyObjective(const nn::CausalLm& student, std::unique_ptr<Objective> inner,
                                     OnPolicyOptions options, std::shared_ptr<const Tokenizer> tokenizer)
    : student_(student), inner_(std::move(inner)), options_(std::move(options)), tokenizer_(std::move(tokenizer)) {}

std::vector<std::string> OnPolicyObjective::metric_names() const {
  std::vector<std::string> names = inner_->metric_names();
  names.insert(names.end(), kFigureNames.begin(), kFigureNames.end());
  return names;
}

bool OnPolicyObjective::samples_in(std::int64_t step) const {
  const RandomKey key{options_.rollout.sampling.seed, hash64("on_policy"), static_cast<std::uint64_t>(step)};
  return static_cast<double>(random_block(key, 0)[0]) * 0x1p-32 < options_.share;
}

std::vector<Batch> OnPolicyObjective::step_batches(std::vector<Batch> data, std::int64_t step) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  texts_.clear();
  figures_ = {0, kNone, kNone};
  if (!samples_in(step)) return data;
  std::vector<RolloutPrompt> prompts;
  std::vector<std::vector<Completion>> completions;
  options_.ranks.with_whole_weights([&] {
    prompts = answer_prompts(data, *tokenizer_);
    completions = sample_completions(student_, prompts, options_.rollout, step, *tokenizer_);
  });
  std::vector<RolloutSequence> sequences;
  std::array<double, 3> sums{};
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const Completion& completion = completions[p].front();
    sequences.push_back({prompts[p].tokens, completion.tokens});
    sums[0] += 1;
    sums[1] += static_cast<double>(completion.tokens.size());
    sums[2] += completion.ended ? 0 : 1;
    if (std::ssize(texts_) == options_.logged) continue;
    SampledText& text = texts_.emplace_back();
    text.prompt = prompts[p].text;
    text.text = completion.text;
    text.tokens = completion.tokens;
    text.figures = {{"length", completion.tokens.size()}, {"ended", completion.ended}};
  }
  distributed::all_reduce_numbers(*options_.ranks.ranks->host, sums, distributed::ReduceOp::sum, "completions");
  options_.ranks.together("completions", [&] {
    QUENCH_CHECK_AS(ErrorCode::bad_config, sums[0] > 0,
                    "distill.on_policy: no sequence of step {} has a prompt before its targets; data.train needs "
                    "conversations, or records of a prompt and a completion, and data.train_on assistant or last",
                    step);
  });
  figures_ = {1, sums[1] / sums[0], sums[2] / sums[0]};
  RolloutBatches packed = pack_rollouts(sequences, options_.micro_batch_size, options_.rollout.sequence_tokens);
  options_.ranks.even_out(packed);
  return std::move(packed.batches);
}

SamplingBytes OnPolicyObjective::plan_batches(std::int64_t prompts) {
  SamplingBytes bytes;
  bytes.gathered =
      options_.ranks.plan_whole_weights([&] { bytes.cache = plan_completions(student_, prompts, options_.rollout); });
  return bytes;
}

autograd::Variable OnPolicyObjective::loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                           const Tensor& metrics) {
  const auto own = static_cast<std::int64_t>(kFigureNames.size()), others = metrics.numel() - own;
  Tensor figures = metrics.narrow(0, others, own);
  figures.zero();
  return inner_->loss(in, scale, options, metrics.narrow(0, 0, others));
}

std::vector<double> OnPolicyObjective::reported(std::vector<double> means) const {
  if (means.empty()) return means;
  means.resize(means.size() - figures_.size());
  means = inner_->reported(std::move(means));
  means.insert(means.end(), figures_.begin(), figures_.end());
  return means;
}

}  // namespace quench
