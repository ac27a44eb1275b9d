#include "train/model_folder/stored_block_scales.h"

#include "export/formats/fused_experts.h"
#include "export/table/open_stored_weights.h"
#include "train/model_folder/model_folder.h"

namespace quench {

std::function<Tensor(const ModelTensor&)> stored_block_scales(const std::filesystem::path& folder) {
  const auto stored = stored_model_config(folder);
  if (!stored || !is_read_dense(*stored)) return nullptr;
  const nn::ModelConfig config = read_model_config(folder);
  const std::shared_ptr<const StoredWeights> weights =
      split_experts(open_stored_weights(folder, config.source), config.experts);
  return [weights](const ModelTensor& tensor) {
    return weights->find(tensor.name) ? weights->block_scales(tensor.name, 0) : Tensor();
  };
}

}  // namespace quench
