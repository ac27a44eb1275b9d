#pragma once
// One tensor for all experts of a layer. Llama 4: gate_up_proj [E, in, 2 * out] (gate first) and down_proj [E, in,
// out], transposed against linear layers. gpt-oss: the same with alternating columns of gate and up, and biases
// gate_up_proj_bias [E, 2 * out] and down_proj_bias [E, out]. Others, by Transformers 5 with
// save_original_format=False: [E, 2 * out, in] and [E, out, in]. Quench: one matrix per expert,
// "experts.3.gate_proj.weight".

#include <memory>
#include <vector>

#include "export/formats/model_tensors.h"
#include "export/formats/stored_weights.h"

namespace quench {

// Unchanged if nothing is fused.
[[nodiscard]] std::unique_ptr<StoredWeights> split_experts(std::unique_ptr<StoredWeights> weights,
                                                           const nn::ExpertsSpec& experts);

// Output `row` of part `part` among an expert's outputs: parts one after the other, or taking turns.
struct OutputOrder {
  std::int64_t parts = 1, rows = 0;  // rows of a part
  bool interleaved = false;
  [[nodiscard]] std::int64_t at(std::int64_t part, std::int64_t row) const {
    return interleaved ? row * parts + part : part * rows + row;
  }
  [[nodiscard]] std::int64_t step() const { return interleaved ? parts : 1; }
};

// "model.layers.0.mlp.experts.down_proj", of the weight or bias of a layer's experts.
[[nodiscard]] std::string fused_name(const nn::Parameter& parameter);
// From all pieces of a parameter, expert 0 first, gate before up.
[[nodiscard]] ModelTensor fused_experts(const std::vector<ModelTensor>& pieces, bool interleaved);

// Fuses experts if the family stores them so; neither weights nor biases of a projection with a quantized
// expert.
[[nodiscard]] std::vector<ModelTensor> fuse_experts(const std::vector<ModelTensor>& tensors,
                                                    const nn::ModelConfig& config);

}  // namespace quench
