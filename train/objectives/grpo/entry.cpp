#include <array>

#include "core/system/check.h"
#include "train/objectives/entries.h"
#include "train/objectives/grpo/grpo_section.h"

namespace quench {
namespace {

constexpr std::array<ForeignKey, 4> kGrpoAliases = {
    {{"reward_funcs", "grpo.rewards", "names, or an object of names with weights"},
     {"reward_weights", "grpo.rewards", "an object of names with weights"},
     {"mu", "grpo.num_iterations", ""},
     {"num_completions_to_print", "grpo.log_completions", ""}}};

// Names of the method for these settings: GSPO, RLOO, Dr. GRPO, DAPO, GRPO.
std::string method(const RunConfig& config) {
  const GrpoSection& section = *grpo_section(config);
  if (section.importance_sampling_level == ImportanceLevel::sequence) return "GSPO";
  if (section.baseline == RewardBaseline::leave_one_out) return "RLOO";
  if (section.loss_type == PolicyLossType::dr_grpo) return "Dr. GRPO";
  return section.epsilon_high.value_or(section.epsilon) > section.epsilon ? "DAPO" : "GRPO";
}

std::string describe(const RunConfig& config) {
  const GrpoSection& section = *grpo_section(config);
  std::string text = fmt::format("grpo: {} completions of at most {} tokens for each prompt, reward {}, loss {}",
                                 section.num_generations, section.max_completion_length, section.rewards.to_text(),
                                 enum_name(section.loss_type));
  if (section.num_iterations > 1) text += fmt::format(", {} steps over the same samples", section.num_iterations);
  if (section.beta > 0)
    text += fmt::format(", {} x divergence from {}", section.beta,
                        config.lora ? "the base without adapters" : "the model at step 0");
  return text + "\n";
}

}  // namespace

ObjectiveEntry grpo_entry() {
  return {.name = "grpo",
          .summary = "rewards of completions that the model samples: GRPO, Dr. GRPO, DAPO, RLOO, GSPO",
          .section = objective_section<GrpoSection>(
              "Learning from rewards of sampled completions: GRPO, Dr. GRPO, DAPO, RLOO, GSPO "
              "(docs/guide/rewards.md). Off unless present.",
              add_grpo_fields),
          .aliases = kGrpoAliases,
          .check = check_grpo,
          .records = [](const RunConfig&) { return AnswerRecords::prompts; },
          .steps_of_data = [](const RunConfig& config) { return grpo_section(config)->num_iterations; },
          .is_likelihood = false,
          .folders =
              [](const RunConfig& config) {
                std::vector<ObjectiveFolder> folders;
                if (const std::string& model = grpo_section(config)->reward_model; !model.empty())
                  folders.push_back({"grpo.reward_model", model});
                return folders;
              },
          .describe = describe,
          .facts =
              [](const RunConfig& config) {
                return fmt::format("reinforcement learning ({}, reward {})", method(config),
                                   grpo_section(config)->rewards.to_text());
              },
          .method = method,
          .runtime = &kGrpoRuntime};
}

}  // namespace quench
