#pragma once
// What the metadata of TorchAO's safetensors layout say of one weight (writer.h names the source).

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
  std::vector<std::string> parts;  // tensors that hold it: "qdata", "scale", ...
  bool codes_in_pairs = false;     // two of a row in a byte

  [[nodiscard]] bool has(std::string_view part) const;
};

// The class and the parts; the scheme needs the shape. Absent for a plain tensor. `source` names file and weight.
[[nodiscard]] std::optional<std::vector<std::string>> torchao_parts(const Json& description, std::string_view source);

// Of a weight whose codes are stored as a tensor of `stored`, [N,K] or, in pairs, [N,K/2]. Throws unsupported naming
// the class or the attribute that is not supported, corrupt for what no class says.
[[nodiscard]] TorchaoWeight describe_torchao_weight(const Json& description, const Shape& stored,
                                                    std::string_view source);

}  // namespace quench
