#pragma once
// Member of config.json that belongs to one model family.

#include <cstdint>
#include <string_view>

namespace quench::nn {

// A member of config.json that one family has: accepted there, refused in others (nn/spec/model_fields.h), and a key of
// run configs, model.NAME.
struct ConfigMember {
  enum class Type { integer, positive_number, nonnegative_number, boolean, index_list, text };

  std::string_view name;
  Type type = Type::integer;
  std::int64_t low = 1, high = INT32_MAX;  // range of an integer
  bool changes_shapes = false;             // shapes of parameters depend on it: a run that resumes cannot change it
  std::string_view help;
  std::string_view refusal;         // what other families lack
  std::string_view neutral = "[]";  // JSON list of values, besides null, that other families accept
};

}  // namespace quench::nn
