#pragma once
// Support status of config.json members.

#include <span>
#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench::nn {

struct ModelFamily;

enum class FieldUse {
  executed,  // affects computation, loading, saving or generation
  harmless,  // irrelevant to Quench
  missing,   // would change the computation; not supported
};

struct ModelField {
  std::string_view name;
  FieldUse use = FieldUse::harmless;
  std::string_view note;            // harmless: why; missing: the unsupported feature
  std::string_view neutral = "[]";  // missing: JSON list of values, besides null, without effect
};

[[nodiscard]] std::span<const ModelField> model_fields();
[[nodiscard]] const ModelField* find_model_field(std::string_view name);

// Reason for refusing this value; empty if accepted or unknown.
[[nodiscard]] std::string field_refusal(const ModelFamily* family, std::string_view name, const Json& value);

}  // namespace quench::nn
