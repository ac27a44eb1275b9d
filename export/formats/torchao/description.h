#pragma once
// Metadata of a weight in TorchAO's layout (writer.h).

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
  std::vector<std::string> parts;  // "qdata", "scale", ...
  bool codes_in_pairs = false;     // two values per byte, along a row

  [[nodiscard]] bool has(std::string_view part) const;
};

// The scheme requires the shape. Absent for a plain tensor. `source`: file and weight.
[[nodiscard]] std::optional<std::vector<std::string>> torchao_parts(const Json& description, std::string_view source);

// `stored`: shape of the quantized values, [N,K] or, packed, [N,K/2]. Throws unsupported naming class or attribute,
// corrupt for invalid metadata.
[[nodiscard]] TorchaoWeight describe_torchao_weight(const Json& description, const Shape& stored,
                                                    std::string_view source);

}  // namespace quench
