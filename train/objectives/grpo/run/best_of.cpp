#include "train/objectives/grpo/run/best_of.h"

#include <cmath>
#include <utility>

namespace quench {

RolloutOptions grpo_rollout(const RunConfig& config) {
  const GrpoSection& section = *grpo_section(config);
  return {.generations = section.num_generations,
          .max_tokens = section.max_completion_length,
          .sequence_tokens = config.data.seq_len,
          .sampling = {.temperature = section.temperature,
                       .top_k = section.top_k,
                       .top_p = section.top_p,
                       .min_p = section.min_p,
                       .seed = static_cast<std::uint64_t>(config.training.seed)}};
}

BestOf::BestOf(const RunConfig& config, const nn::CausalLm& model, const Tokenizer& tokenizer,
               std::vector<std::int64_t> stop_tokens)
    : model_(model),
      tokenizer_(tokenizer),
      options_(grpo_rollout(config)),
      rewards_(*grpo_section(config)),
      minimum_(grpo_section(config)->best_of.minimum) {
  options_.stop_tokens = std::move(stop_tokens);
  rewards_.open(model.options().device, model.options().dtype);
}

std::string BestOf::answer(std::vector<BestOfPrompt> prompts) {
  std::vector<RolloutPrompt> rollout;
  for (BestOfPrompt& prompt : prompts) {
    prompt.rollout.sample = static_cast<std::uint64_t>(counts_.prompts++);
    rollout.push_back(std::move(prompt.rollout));
  }
  const std::vector<std::vector<Completion>> groups = sample_completions(model_, rollout, options_, 1, tokenizer_);
  std::vector<RewardSample> judged;
  for (std::size_t p = 0; p < rollout.size(); ++p)
    for (const Completion& completion : groups[p])
      judged.push_back({rollout[p].text, completion.text, rollout[p].record});
  const std::vector<double> rewards = rewards_.score(judged).total;
  std::string lines;
  std::size_t at = 0;
  for (std::size_t p = 0; p < rollout.size(); ++p) {
    const Completion* best = nullptr;
    double reward = 0;
    for (const Completion& completion : groups[p]) {
      const double own = rewards[at++];
      if (!std::isfinite(own) || (best != nullptr && own <= reward)) continue;
      best = &completion;
      reward = own;
    }
    if (best == nullptr) ++counts_.without_reward;
    if (best == nullptr || (minimum_ && reward < *minimum_)) continue;
    ++counts_.accepted;
    counts_.reward += reward;
    Json& record = prompts[p].answered;
    if (Json* messages = record.find("messages"))
      messages->push_back(Json::Object{{"role", "assistant"}, {"content", best->text}});
    else
      record.set("completion", best->text);
    record.set("reward", reward);
    lines += record.dump() + "\n";
  }
  return lines;
}

}  // namespace quench
