#include "export/imatrix/importance.h"

#include <set>

#include "core/system/log.h"
#include "export/formats/gguf/experts.h"
#include "export/formats/gguf/names.h"

namespace quench {
namespace {

void check_shape(const std::string& name, const ImatrixEntry& entry, const ModelTensor& tensor,
                 std::string_view source) {
  const std::int64_t experts = std::max<std::int64_t>(tensor.parameter->experts, 1), width = tensor.shape[1];
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  static_cast<std::int64_t>(entry.sums.size()) == experts * width &&
                      (entry.matrices() == 1 || entry.matrices() == experts),
                  "{} is the importance matrix of another model: {} has {} values for {} matrices, this model has {} "
                  "of width {}",
                  source, name, entry.sums.size(), entry.matrices(), experts, width);
}

}  // namespace

std::optional<std::string> matrix_name(const ModelTensor& tensor, const nn::ModelConfig& config) {
  if (tensor.parameter != nullptr && tensor.parameter->experts > 0)
    return gguf_experts_name(tensor.name, config.experts);
  const GgufArchitecture* architecture = find_gguf_architecture(config.model_type);
  return architecture == nullptr ? std::nullopt : gguf_tensor_name(tensor.name, *architecture);
}

std::int64_t matrix_of(const ModelTensor& tensor) {
  const std::int64_t experts = tensor.parameter->experts;
  return experts > 0 ? tensor.piece->row_begin / (tensor.parameter->global_shape[0] / experts) : 0;
}

Importance::Importance(Imatrix matrix, const std::vector<ModelTensor>& tensors, const nn::ModelConfig& config,
                       std::string_view source)
    : matrix_(std::move(matrix)), config_(config) {
  std::set<std::string> known;
  std::string missing;
  std::size_t lacks = 0;
  for (const ModelTensor& tensor : tensors) {
    if (tensor.layer.empty() || tensor.embedding) continue;
    const auto name = matrix_name(tensor, config);
    if (!name || !known.insert(*name).second) continue;
    if (const auto entry = matrix_.entries.find(*name); entry != matrix_.entries.end()) {
      check_shape(*name, entry->second, tensor, source);
    } else if (name->starts_with("blk.")) {
      if (lacks++ == 0) missing = *name;
    }
  }
  constexpr std::string_view kLayer = "blk.";
  std::size_t found = 0;
  for (const auto& [name, entry] : matrix_.entries) {
    if (known.contains(name)) ++found;
    if (!name.starts_with(kLayer)) continue;
    const std::int64_t layer = std::atoll(name.c_str() + kLayer.size());
    QUENCH_CHECK_AS(ErrorCode::bad_config, layer < config.all_layers(),
                    "{} is the importance matrix of another model: it has {}, and this model {} layers", source, name,
                    config.all_layers());
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, found > 0,
                  "{} is the importance matrix of another model: none of its {} names ({}, ...) is a layer of this one",
                  source, matrix_.entries.size(), matrix_.entries.empty() ? "" : matrix_.entries.begin()->first);
  if (lacks > 0)
    QUENCH_LOG_WARN("{} has no entry for {} of the model's tensors ({}{}): they are quantized without importance",
                    source, lacks, missing, lacks > 1 ? ", ..." : "");
}

std::vector<float> Importance::of(const ModelTensor& tensor) const {
  if (!defined() || tensor.embedding) return {};
  const auto name = matrix_name(tensor, config_);
  const auto found = name ? matrix_.entries.find(*name) : matrix_.entries.end();
  if (found == matrix_.entries.end()) return {};
  const ImatrixEntry& entry = found->second;
  const std::int64_t expert = matrix_of(tensor), width = tensor.shape[1];
  const float count = entry.counts[entry.matrices() == 1 ? 0 : static_cast<std::size_t>(expert)];
  const float* sums = entry.sums.data() + expert * width;
  std::vector<float> values(sums, sums + width);
  if (count <= 0)
    QUENCH_LOG_WARN("{}: no calibration tokens reach this expert: its weight is quantized without importance",
                    tensor.layer);
  for (float& value : values) value = count > 0 ? value / count : 1.0f;
  return values;
}

}  // namespace quench
