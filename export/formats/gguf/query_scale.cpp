#include "export/formats/gguf/query_scale.h"

#include <algorithm>
#include <cmath>

#include "export/formats/gguf/names.h"

namespace quench {
namespace {

// Absent: the loader takes the model's.
std::optional<double> loader_scale(const nn::ModelConfig& config) {
  const GgufArchitecture* architecture = find_gguf_architecture(config.model_type);
  if (architecture == nullptr || architecture->score_scale == nullptr) return std::nullopt;
  return architecture->score_scale(config);
}

}  // namespace

float gguf_query_factor(const nn::ModelConfig& config) {
  const std::optional<double> loader = loader_scale(config);
  if (!loader) return 1.0f;
  const double ratio = config.block(0).attention.scale / *loader;
  return std::abs(ratio - 1) <= 1e-6 ? 1.0f : static_cast<float>(ratio);
}

nn::ModelConfig gguf_stored_config(nn::ModelConfig config) {
  if (gguf_query_factor(config) == 1.0f) return config;
  const double scale = loader_scale(config).value();
  for (nn::BlockSpec& block : config.blocks) block.attention.scale = scale;
  return config;
}

void fold_query_scale(std::vector<ModelTensor>& tensors, nn::ModelConfig& config) {
  const float factor = gguf_query_factor(config);
  if (factor == 1.0f) return;
  const bool normed = config.block(0).attention.qk_norm == nn::QkNorm::weighted;
  const std::string_view part = normed ? ".self_attn.q_norm." : ".self_attn.q_proj.";
  for (ModelTensor& tensor : tensors)
    if (tensor.name.find(part) != std::string::npos) tensor.factor = factor;
  config = gguf_stored_config(std::move(config));
}

std::string folded_scale_text(const std::vector<ModelTensor>& tensors, const nn::ModelConfig& config) {
  const auto found = std::ranges::find_if(tensors, [](const ModelTensor& tensor) { return tensor.factor != 1.0f; });
  if (found == tensors.end()) return {};
  const auto scalar = [](double scale) { return 1 / (scale * scale); };
  const double loader = config.block(0).attention.scale;
  return fmt::format(
      "GGUF: {} and its like in other layers are stored times {:.6g}: scores are divided by the square root of {:.6g}, "
      "in llama.cpp of {:.6g}",
      found->name, found->factor, scalar(loader * found->factor), scalar(loader));
}

}  // namespace quench
