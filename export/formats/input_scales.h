#pragma once
// Scales of static inputs, one number a layer, next to its weight.

#include <string>
#include <string_view>
#include <vector>

#include "core/safetensors/safetensors_folder.h"

namespace quench {

// Throws corrupt, naming folder and tensor, unless it is one number in F32, BF16 or F16.
[[nodiscard]] float read_input_scale(const SafetensorsFolder& folder, const SafetensorsFolder::Location& stored);

// One warning, none for no layers: their inputs stay unquantized without the scale `part` (".input_scale"). A scale
// from the inputs of a call would differ from call to call.
void warn_of_unquantized_inputs(const SafetensorsFolder& folder, std::string_view part,
                                const std::vector<std::string>& layers);

}  // namespace quench
