#pragma once
// Experts of a layer: one tensor a projection in llama.cpp, [E, N, K] and biases [E, N]; in Quench one matrix an
// expert.

#include <optional>
#include <string>
#include <string_view>

#include "export/formats/gguf/head_parser.h"
#include "nn/spec/model_config.h"

namespace quench {

// "blk.3.ffn_gate_exps.weight" of "model.layers.3.mlp.experts.7.gate_proj.weight", of any expert. Absent: of no expert.
[[nodiscard]] std::optional<std::string> gguf_experts_name(std::string_view hf_name, const nn::ExpertsSpec& experts);

// An expert's name, and its part of the tensor as an entry of its own.
struct GgufExpert {
  std::string name;
  GgufEntry entry;
};
// Entries of all experts; empty: no tensor of experts. Throws corrupt, naming `source`, for another number of experts.
[[nodiscard]] std::vector<GgufExpert> gguf_experts_of(const GgufEntry& entry, const nn::ExpertsSpec& experts,
                                                      std::string_view source);

}  // namespace quench
