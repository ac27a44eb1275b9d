#pragma once
// Table of rewards: what a completion is worth, by verifiable rules.

#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.h"
#include "core/json/json.h"
#include "core/number/dtype.h"
#include "core/system/choice_table.h"

namespace quench {

struct GrpoSection;

// A sampled completion, valid UTF-8, without special tokens. `record`: the fields besides the prompt.
struct RewardSample {
  std::string_view prompt;
  std::string_view completion;
  const Json& record;
};

// {"prompt", "completion", "record"}
[[nodiscard]] Json to_json(const RewardSample& sample);

class Reward {
 public:
  virtual ~Reward() = default;
  // Reads what it needs besides the config, once, before score(). On the meta device only what plan() needs.
  virtual void open(Device /*device*/, DType /*dtype*/) {}
  // After open() on the meta device: allocates and frees what score() of `samples` samples of at most `tokens` tokens
  // needs.
  virtual void plan(std::int64_t /*samples*/, std::int64_t /*tokens*/) const {}
  // One number for each sample; NaN: none. Throws an Error that names the reward's key, or the record's field.
  [[nodiscard]] virtual std::vector<double> score(std::span<const RewardSample> samples) const = 0;
};

struct RewardEntry {
  std::string_view name;
  std::string_view summary;
  std::string_view key{};                                                 // config key that it needs; empty: none
  std::vector<std::string_view> keys{};                                   // all config keys that it reads
  std::unique_ptr<Reward> (*make)(const GrpoSection& section) = nullptr;  // throws bad_config

  [[nodiscard]] bool reads(std::string_view name_of_key) const {
    for (const std::string_view own : keys)
      if (own == name_of_key) return true;
    return false;
  }
};

[[nodiscard]] const ChoiceTable<RewardEntry>& reward_table();

// The answer of a record as text: a text, or the JSON of a number or truth value. Throws corrupt naming the field.
[[nodiscard]] std::string answer_of(const Json& record, const std::string& field);
// The last number in a text, as "-1,234.5e-3" or "3/4"; NaN without one.
[[nodiscard]] double last_number(std::string_view text);

[[nodiscard]] std::unique_ptr<Reward> exact_match_reward(const GrpoSection& section);
[[nodiscard]] std::unique_ptr<Reward> numeric_match_reward(const GrpoSection& section);
[[nodiscard]] std::unique_ptr<Reward> regex_reward(const GrpoSection& section);
[[nodiscard]] std::unique_ptr<Reward> json_schema_reward(const GrpoSection& section);
[[nodiscard]] std::unique_ptr<Reward> command_reward(const GrpoSection& section);
[[nodiscard]] std::unique_ptr<Reward> http_reward(const GrpoSection& section);
[[nodiscard]] std::unique_ptr<Reward> model_reward(const GrpoSection& section);
[[nodiscard]] std::unique_ptr<Reward> function_reward(const GrpoSection& section);

// Function of reward "function", one for the process; empty: none. Called by the thread that trains.
using RewardFunction = std::function<std::vector<double>(std::span<const RewardSample> samples)>;
void set_reward_function(RewardFunction function);

}  // namespace quench
