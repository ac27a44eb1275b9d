#pragma once
// Names of tensors in adapter_model.safetensors.

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "recipes/lora/adapters.h"

namespace quench::peft_names {

inline constexpr std::string_view kPrefix = "base_model.model.", kWeight = ".weight";
inline constexpr std::string_view kTokenRows = "token_adapter.trainable_tokens_delta",
                                  kPatchedTable = ".token_adapter.base_layer.weight",
                                  kAdaptedTable = ".base_layer.weight";
inline constexpr std::string_view kTable = "model.embed_tokens";

inline constexpr std::array<std::pair<recipes::AdapterPart, std::string_view>, 3> kPartNames = {
    {{recipes::AdapterPart::a, "lora_A.weight"},
     {recipes::AdapterPart::b, "lora_B.weight"},
     {recipes::AdapterPart::magnitude, "lora_magnitude_vector"}}};

inline std::string_view name_of(recipes::AdapterPart part) {
  if (part == recipes::AdapterPart::module) return kWeight.substr(1);
  if (part == recipes::AdapterPart::tokens) return kTokenRows;
  return std::ranges::find(kPartNames, part, [](const auto& row) { return row.first; })->second;
}

}  // namespace quench::peft_names
