// Reward of completions that are JSON of a schema.

#include "train/objectives/grpo/grpo_section.h"
#include "train/objectives/grpo/rewards/json_schema.h"
#include "train/objectives/grpo/rewards/reward.h"

namespace quench {
namespace {

constexpr std::size_t kMostSchemaText = 8192;  // bytes of a text that a pattern searches

// The document without space and a fence of three backticks around it.
std::string_view document_in(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n", kFence = "```";
  const auto strip = [&] {
    const std::size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
    text = text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
  };
  strip();
  if (text.size() < 2 * kFence.size() || !text.starts_with(kFence) || !text.ends_with(kFence)) return text;
  text.remove_suffix(kFence.size());
  // The fence may name a language: "```json".
  text.remove_prefix(kFence.size());
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto word = static_cast<std::size_t>(std::ranges::find_if_not(text, is_letter) - text.begin());
  if (word < text.size() && kSpaces.find(text[word]) != std::string_view::npos) text.remove_prefix(word);
  strip();
  return text;
}

// std::regex recurses over its input.
bool has_long_text(const Json& value) {
  if (value.is_string()) return value.as_string().size() > kMostSchemaText;
  if (value.is_array()) return std::ranges::any_of(value.as_array(), has_long_text);
  return value.is_object() && std::ranges::any_of(value.as_object(), [](const Json::Member& member) {
           return has_long_text(member.second);
         });
}

class SchemaReward final : public Reward {
 public:
  explicit SchemaReward(const std::string& path) : schema_(read(path)) {}
  [[nodiscard]] std::vector<double> score(std::span<const RewardSample> samples) const override {
    std::vector<double> rewards;
    for (const RewardSample& sample : samples) {
      double reward = 0;
      try {
        const Json value = Json::parse(document_in(sample.completion));
        reward = !has_long_text(value) && schema_.accepts(value) ? 1 : 0;
      } catch (const Error&) {  // no JSON
      }
      rewards.push_back(reward);
    }
    return rewards;
  }

 private:
  static JsonSchema read(const std::string& path) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, !path.empty(),
                    "is empty; reward json_schema needs a JSON file with a schema");
    try {
      return JsonSchema(Json::parse_file(path));
    } catch (const Error& error) {
      const std::string text = error.what();
      QUENCH_FAIL(ErrorCode::bad_config, "{}", text.starts_with(path) ? text : fmt::format("{}: {}", path, text));
    }
  }
  JsonSchema schema_;
};

}  // namespace

std::unique_ptr<Reward> json_schema_reward(const GrpoSection& section) {
  return std::make_unique<SchemaReward>(section.reward_schema);
}

}  // namespace quench
