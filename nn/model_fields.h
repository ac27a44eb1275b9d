#pragma once
// What becomes of each member of a Hugging Face config.json.

#include <span>
#include <string>
#include <string_view>

#include "core/json/json.h"

namespace quench::nn {

struct ModelFamily;

enum class FieldUse {
  executed,  // decides what is computed, loaded, stored or generated
  harmless,  // says nothing about what Quench computes
  missing,   // would change what is computed in a way that this version does not have
};

struct ModelField {
  std::string_view name;
  FieldUse use = FieldUse::harmless;
  std::string_view note;            // harmless: why; missing: what this version lacks
  std::string_view neutral = "[]";  // missing: a JSON list of the values, besides null, that ask for nothing
};

// Every member that is known, whatever family it belongs to.
[[nodiscard]] std::span<const ModelField> model_fields();
// nullptr for an unknown one.
[[nodiscard]] const ModelField* find_model_field(std::string_view name);

// Why a model may not have this value: it asks for something that neither this version nor the family executes. Empty
// where it may, and for members that are not known. `family` null: whatever no family has.
[[nodiscard]] std::string field_refusal(const ModelFamily* family, std::string_view name, const Json& value);

}  // namespace quench::nn
