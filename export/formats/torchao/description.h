#pragma once
// Metadata of one weight in TorchAO's safetensors layout (source: writer.h).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "export/schemes/scheme.h"

namespace quench {

struct TorchaoWeight {
  OperandScheme weights;
  std::optional<OperandScheme> inputs;
  std::vector<std::string> parts;  // stored tensors: "qdata", "scale", ...
  bool codes_in_pairs = false;     // two values per byte, packed along a row

  [[nodiscard]] bool has(std::string_view part) const;
};

// Class and parts; the scheme requires the shape. Absent for a plain tensor. `source` names file and weight.
[[nodiscard]] std::optional<std::vector<std::string>> torchao_parts(const Json& description, std::string_view source);

// Description of a weight with quantized values of shape `stored`: [N,K] or, packed, [N,K/2]. Throws unsupported naming
// an unsupported class or attribute, corrupt for invalid metadata.
[[nodiscard]] TorchaoWeight describe_torchao_weight(const Json& description, const Shape& stored,
                                                    std::string_view source);

}  // namespace quench
