#pragma once
// Checkpoints that hold the matrices of all experts of a layer in one tensor: of Llama 4 gate_up_proj [E, in, 2 * out],
// gate in front, and down_proj [E, in, out], transposed as against linear layers; of other families, where Transformers
// 5 saves what it has in memory (save_original_format=False), [E, 2 * out, in] and [E, out, in]. The rest of Quench has
// a matrix an expert, under the names that linear layers would have: "experts.3.gate_proj.weight".

#include <memory>
#include <vector>

#include "export/formats/model_tensors.h"
#include "export/formats/stored_weights.h"

namespace quench {

// The same weights with a matrix for each expert, under the names of the model's family; `weights` itself where nothing
// is fused.
[[nodiscard]] std::unique_ptr<StoredWeights> split_experts(std::unique_ptr<StoredWeights> weights,
                                                           const nn::ExpertsConfig& experts);

// The same tensors, those of a layer's experts fused where the model's family stores them so. Experts of which some are
// quantized stay as they are, a tensor each.
[[nodiscard]] std::vector<ModelTensor> fuse_experts(const std::vector<ModelTensor>& tensors,
                                                    const nn::ModelConfig& config);

}  // namespace quench
