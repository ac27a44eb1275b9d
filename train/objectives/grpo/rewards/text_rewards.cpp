// Rewards of a completion's text.

#include <charconv>
#include <cmath>
#include <regex>

#include "core/system/check.h"
#include "train/objectives/grpo/grpo_section.h"
#include "train/objectives/grpo/rewards/reward.h"

namespace quench {
namespace {

constexpr std::size_t kSearchedBytes = 8192;  // std::regex recurses by character

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view stripped(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Number that begins at `at`, a digit or a point before one, with commas before groups of three digits left out;
// `end`: out, the position after it.
double number_at(std::string_view text, std::size_t at, std::size_t& end) {
  std::string digits;
  std::size_t i = at;
  const auto digit = [&](std::size_t place) { return place < text.size() && is_digit(text[place]); };
  while (i < text.size()) {
    const bool grouped = text[i] == ',' && digit(i + 1) && digit(i + 2) && digit(i + 3) && !digit(i + 4);
    if (!digit(i) && !grouped) break;
    if (!grouped) digits += text[i];
    ++i;
  }
  if (i < text.size() && text[i] == '.' && digit(i + 1)) {
    do digits += text[i++];
    while (digit(i));
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    const std::size_t sign = i + 1 < text.size() && (text[i + 1] == '-' || text[i + 1] == '+') ? 1 : 0;
    if (digit(i + 1 + sign)) {
      digits += 'e';
      if (sign != 0 && text[i + 1] == '-') digits += '-';
      for (i += 1 + sign; digit(i); ++i) digits += text[i];
    }
  }
  end = i;
  double value = 0;
  if (digits.front() == '.') digits.insert(digits.begin(), '0');
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() ? value : std::numeric_limits<double>::infinity();
}

class ExactMatch final : public Reward {
 public:
  explicit ExactMatch(std::string field) : field_(std::move(field)) {}
  [[nodiscard]] std::vector<double> score(std::span<const RewardSample> samples) const override {
    std::vector<double> rewards;
    for (const RewardSample& sample : samples)
      rewards.push_back(stripped(sample.completion) == stripped(answer_of(sample.record, field_)) ? 1 : 0);
    return rewards;
  }

 private:
  std::string field_;
};

class NumericMatch final : public Reward {
 public:
  NumericMatch(std::string field, double tolerance) : field_(std::move(field)), tolerance_(tolerance) {}
  [[nodiscard]] std::vector<double> score(std::span<const RewardSample> samples) const override {
    std::vector<double> rewards;
    for (const RewardSample& sample : samples) {
      const std::string answer = answer_of(sample.record, field_);
      const double wanted = last_number(answer);
      QUENCH_CHECK_AS(ErrorCode::corrupt, std::isfinite(wanted),
                      "grpo.rewards numeric_match: field \"{}\" of a record is {}, which holds no number; correct the "
                      "record, or set grpo.answer_field",
                      field_, Json(answer).dump());
      rewards.push_back(std::abs(last_number(sample.completion) - wanted) <= tolerance_ ? 1 : 0);
    }
    return rewards;
  }

 private:
  std::string field_;
  double tolerance_;
};

class RegexReward final : public Reward {
 public:
  RegexReward(const std::string& pattern, std::string field) : field_(std::move(field)) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, !pattern.empty(),
                    "is empty; reward regex needs a regular expression, such as \"answer: ([0-9]+)\"");
    try {
      pattern_.assign(pattern, std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error& error) {
      QUENCH_FAIL(ErrorCode::bad_config, "{} is no ECMAScript regular expression: {}", Json(pattern).dump(),
                  error.what());
    }
  }
  [[nodiscard]] std::vector<double> score(std::span<const RewardSample> samples) const override {
    std::vector<double> rewards;
    for (const RewardSample& sample : samples) {
      const std::string text(
          sample.completion.substr(sample.completion.size() - std::min(sample.completion.size(), kSearchedBytes)));
      std::smatch found;
      bool matches = std::regex_search(text, found, pattern_);
      if (matches && found.size() > 1) matches = stripped(found[1].str()) == stripped(answer_of(sample.record, field_));
      rewards.push_back(matches ? 1 : 0);
    }
    return rewards;
  }

 private:
  std::string field_;
  std::regex pattern_;
};

}  // namespace

std::string answer_of(const Json& record, const std::string& field) {
  const Json* answer = record.find(field);
  QUENCH_CHECK_AS(ErrorCode::corrupt, answer != nullptr && !answer->is_null(),
                  "a record has no field \"{}\", by which grpo.rewards judge; it has {}: set grpo.answer_field, or add "
                  "the field",
                  field, record.dump());
  QUENCH_CHECK_AS(ErrorCode::corrupt, !answer->is_object() && !answer->is_array(),
                  "field \"{}\" of a record is {}, expected a text or a number for grpo.rewards", field,
                  answer->type_name());
  return answer->is_string() ? answer->as_string() : answer->dump();
}

double last_number(std::string_view text) {
  double last = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0; i < text.size();) {
    const bool point = text[i] == '.' && i + 1 < text.size() && is_digit(text[i + 1]);
    if (!is_digit(text[i]) && !point) {
      ++i;
      continue;
    }
    // A sign that is no operator between two operands.
    std::size_t before = i;
    bool negative = before > 0 && text[before - 1] == '-';
    if (negative && before > 1) {
      const char c = text[before - 2];
      negative = !is_digit(c) && !std::isalpha(static_cast<unsigned char>(c)) && c != ')';
    }
    std::size_t end = i;
    double value = number_at(text, i, end);
    if (end + 1 < text.size() && text[end] == '/' && is_digit(text[end + 1])) value /= number_at(text, end + 1, end);
    last = negative ? -value : value;
    i = end;
  }
  return last;
}

std::unique_ptr<Reward> exact_match_reward(const GrpoSection& section) {
  return std::make_unique<ExactMatch>(section.answer_field);
}
std::unique_ptr<Reward> numeric_match_reward(const GrpoSection& section) {
  return std::make_unique<NumericMatch>(section.answer_field, section.reward_tolerance);
}
std::unique_ptr<Reward> regex_reward(const GrpoSection& section) {
  return std::make_unique<RegexReward>(section.reward_pattern, section.answer_field);
}

}  // namespace quench
