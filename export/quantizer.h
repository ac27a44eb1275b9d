#pragma once
// Ways to choose codes, scales and zero points for a weight: a line of the table each.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "export/quantized_weight.h"

namespace quench {

struct Quantizer {
  std::string_view name;
  std::string_view summary;
  std::string (*problem)(const OperandScheme& scheme);  // why it cannot quantize so, or ""
  // Of a finite weight f32 or bf16 [N,K] on the CPU; scales in high precision are stored in `scale_dtype`, by default
  // the weight's. Throws what round_to_nearest throws.
  QuantizedWeight (*quantize)(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
                              std::optional<DType> scale_dtype);
};

// The default first.
[[nodiscard]] std::span<const Quantizer> quantizers();
[[nodiscard]] std::vector<std::string> quantizer_names();
// Throws bad_config with the list of names for an unknown one; `key` names the option in the message.
[[nodiscard]] const Quantizer& require_quantizer(std::string_view name, std::string_view key);

}  // namespace quench
