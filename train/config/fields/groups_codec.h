#pragma once
// [{"match": [...], "lr_scale": 0.1, "weight_decay": 0}, ...]

#include "train/config/value_codec.h"

namespace quench {

template <>
struct Codec<std::vector<ParameterGroup>> {
  static constexpr ValueKind kind = ValueKind::json;
  static std::string type(const ValueRule& rule);
  static Json schema(const ValueRule& rule);
  static ReadError read(const Json& value, const ValueRule& rule, std::vector<ParameterGroup>& target);
  static Json write(const std::vector<ParameterGroup>& value, const ValueRule& rule);
};

}  // namespace quench
