#include "export/formats/gguf/metadata_fields.h"

#include <algorithm>
#include <cmath>

#include "core/system/check.h"

namespace quench {
namespace {

constexpr double kMostInteger = 2147483648.0;

}  // namespace

std::vector<std::string> GgufFields::keys(std::string_view beginning) const {
  std::vector<std::string> keys;
  const std::string whole = name(beginning);
  for (auto at = head_.metadata.lower_bound(whole); at != head_.metadata.end() && at->first.starts_with(whole); ++at)
    keys.push_back(at->first.substr(prefix_.size()));
  return keys;
}

const Json* GgufFields::find(std::string_view key) const {
  const auto found = head_.metadata.find(name(key));
  return found == head_.metadata.end() ? nullptr : &found->second;
}

void GgufFields::refuse(std::string_view key, const Json& value, std::string_view expected) const {
  constexpr std::size_t kShown = 60;
  const bool infinite = value.is_number() && !std::isfinite(value.as_double());
  const std::string text = infinite ? "not finite" : value.is_array() ? std::string("a list") : value.dump();
  QUENCH_FAIL(ErrorCode::corrupt, "{}: {} is {}, expected {}", source_, name(key),
              text.size() > kShown ? std::string(value.type_name()) : text, expected);
}

void GgufFields::refuse_missing(std::string_view key) const {
  QUENCH_FAIL(ErrorCode::unsupported, "{}: it has no {}", source_, name(key));
}

const Json* GgufFields::find_single(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr || !value->is_array() || value->as_array().empty()) return value;
  const Json::Array& list = value->as_array();
  QUENCH_CHECK_AS(ErrorCode::unsupported, std::ranges::all_of(list, [&](const Json& one) { return one == list[0]; }),
                  "{}: {} differs from layer to layer", source_, name(key));
  return list.data();
}

std::optional<std::int64_t> GgufFields::find_integer(std::string_view key) const {
  const Json* value = find_single(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_integer() || value->as_double() < 0 || value->as_double() > kMostInteger)
    refuse(key, *value, "an integer from 0 to 2147483648");
  return value->as_int();
}

std::optional<double> GgufFields::find_number(std::string_view key) const {
  const Json* value = find_single(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->as_double())) refuse(key, *value, "a number");
  return value->as_double();
}

std::optional<std::string> GgufFields::find_text(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(key, *value, "a string");
  return value->as_string();
}

std::optional<bool> GgufFields::find_flag(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) refuse(key, *value, "true or false");
  return value->as_bool();
}

std::int64_t GgufFields::integer(std::string_view key) const {
  const auto value = find_integer(key);
  if (!value) refuse_missing(key);
  if (*value == 0) refuse(key, *find(key), "a positive integer");
  return *value;
}

double GgufFields::number(std::string_view key) const {
  const auto value = find_number(key);
  if (!value) refuse_missing(key);
  if (*value <= 0) refuse(key, *find(key), "a positive number");
  return *value;
}

}  // namespace quench
