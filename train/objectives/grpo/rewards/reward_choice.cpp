#include "train/objectives/grpo/rewards/reward_choice.h"

#include <algorithm>
#include <cmath>

#include "train/objectives/grpo/rewards/reward.h"

namespace quench {
namespace {

const ValueRule& reward_names() {
  static const ValueRule rule{.choices = reward_table().names()};
  return rule;
}

ReadError add_reward(const Json& name, double weight, RewardChoice& choice) {
  std::string text;
  if (ReadError error = Codec<std::string>::read(name, reward_names(), text)) return error;
  for (const auto& [other, unused] : choice.weights)
    if (other == text) return ValueError{fmt::format("names {} twice", text), {}};
  choice.weights.emplace_back(std::move(text), weight);
  return std::nullopt;
}

}  // namespace

std::string RewardChoice::to_text() const {
  std::string text;
  for (const auto& [name, weight] : weights) {
    if (!text.empty()) text += " + ";
    text += weight == 1 ? name : fmt::format("{} x {}", weight, name);
  }
  return text;
}

std::string Codec<RewardChoice>::type(const ValueRule&) {
  return fmt::format("name, list of names, or object of names with their weights: {}",
                     join(reward_names().choices, ", "));
}

Json Codec<RewardChoice>::schema(const ValueRule&) {
  const Json name = Codec<std::string>::schema(reward_names());
  const Json list = Json::Object{{"type", "array"}, {"items", name}};
  const Json weights = Json::Object{
      {"type", "object"}, {"propertyNames", name}, {"additionalProperties", Json(Json::Object{{"type", "number"}})}};
  return Json(Json::Object{{"anyOf", Json::Array{name, list, weights}}});
}

ReadError Codec<RewardChoice>::read(const Json& value, const ValueRule& rule, RewardChoice& target) {
  RewardChoice choice;
  ReadError error;
  if (value.is_string()) {
    error = add_reward(value, 1, choice);
  } else if (value.is_array()) {
    for (const Json& name : value.as_array())
      if (!error) error = add_reward(name, 1, choice);
  } else if (value.is_object() && !value.as_object().empty()) {
    for (const auto& [name, weight] : value.as_object()) {
      if (error) break;
      if (!weight.is_number() || !std::isfinite(weight.as_double()))
        error = ValueError{fmt::format("\"{}\": expected a number, its weight, got {}", name, describe(weight)), {}};
      else
        error = add_reward(Json(name), weight.as_double(), choice);
    }
  } else {
    return wrong_value(type(rule), value);
  }
  if (!error) target = std::move(choice);
  return error;
}

Json Codec<RewardChoice>::write(const RewardChoice& value, const ValueRule&) {
  const bool plain = std::ranges::all_of(value.weights, [](const auto& one) { return one.second == 1; });
  Json list = Json::array(), weights = Json::object();
  for (const auto& [name, weight] : value.weights) {
    list.push_back(name);
    weights.set(name, weight);
  }
  return plain ? list : weights;
}

}  // namespace quench
