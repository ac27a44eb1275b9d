#include "train/config/fields/groups_codec.h"

#include <algorithm>

namespace quench {
namespace {

constexpr double kMaxRate = 1e3;

struct GroupNumber {
  std::string_view key;
  std::optional<double> ParameterGroup::*member;
};

constexpr std::array<GroupNumber, 3> kGroupNumbers = {{{"lr_scale", &ParameterGroup::lr_scale},
                                                       {"lr", &ParameterGroup::lr},
                                                       {"weight_decay", &ParameterGroup::weight_decay}}};

ValueRule rate_rule() {
  return {.minimum = 0.0, .maximum = kMaxRate};
}

ReadError read_group(const Json& value, ParameterGroup& group) {
  if (!value.is_object())
    return wrong_value("{\"match\": ..., \"lr_scale\" or \"lr\": ..., \"weight_decay\": ...}", value);
  for (const auto& [key, member] : value.as_object()) {
    ReadError error;
    const auto* number = std::ranges::find(kGroupNumbers, key, &GroupNumber::key);
    if (key == "match")
      error = Codec<std::vector<std::string>>::read(member, {}, group.match);
    else if (number != kGroupNumbers.end())
      error = Codec<std::optional<double>>::read(member, rate_rule(), group.*number->member);
    else
      error = ValueError{
          fmt::format("unknown key \"{}\" of a group; known keys are match, lr_scale, lr, weight_decay", key), "", 0,
          0};
    if (!error) continue;
    if (key == "match" || number != kGroupNumbers.end()) error->reason = fmt::format("{}: {}", key, error->reason);
    error->line = member.line();
    error->column = member.column();
    return error;
  }
  const auto fault = [&](std::string reason) {
    return ValueError{std::move(reason), "", value.line(), value.column()};
  };
  if (group.match.empty()) return fault("a group has no match: name its parameters by glob patterns");
  if (group.lr && group.lr_scale) return fault("a group has lr and lr_scale; give one of the two");
  if (!group.lr && !group.lr_scale && !group.weight_decay)
    return fault("a group changes nothing: give lr_scale, lr or weight_decay");
  return std::nullopt;
}

}  // namespace

std::string Codec<std::vector<ParameterGroup>>::type(const ValueRule&) {
  return "list of {\"match\", \"lr_scale\" or \"lr\", \"weight_decay\"}";
}

Json Codec<std::vector<ParameterGroup>>::schema(const ValueRule&) {
  Json::Object members{{"match", Codec<std::vector<std::string>>::schema({})}};
  for (const GroupNumber& number : kGroupNumbers)
    members.emplace_back(std::string(number.key), Codec<std::optional<double>>::schema(rate_rule()));
  Json group(Json::Object{{"type", "object"},
                          {"properties", std::move(members)},
                          {"required", Json::Array{Json("match")}},
                          {"additionalProperties", false}});
  return Json(Json::Object{{"type", "array"}, {"items", std::move(group)}});
}

ReadError Codec<std::vector<ParameterGroup>>::read(const Json& value, const ValueRule& rule,
                                                   std::vector<ParameterGroup>& target) {
  if (!value.is_array()) return wrong_value(type(rule), value);
  std::vector<ParameterGroup> groups;
  for (const Json& element : value.as_array()) {
    if (ReadError error = read_group(element, groups.emplace_back())) {
      error->reason = fmt::format("element {} of the list: {}", groups.size(), error->reason);
      return error;
    }
  }
  target = std::move(groups);
  return std::nullopt;
}

Json Codec<std::vector<ParameterGroup>>::write(const std::vector<ParameterGroup>& value, const ValueRule&) {
  Json list = Json::array();
  for (const ParameterGroup& group : value) {
    Json one = Json::object();
    one.set("match", Codec<std::vector<std::string>>::write(group.match, {}));
    for (const GroupNumber& number : kGroupNumbers)
      if (const std::optional<double>& set = group.*number.member) one.set(std::string(number.key), *set);
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace quench
