#include "export/table/mixed_types.h"

#include "export/formats/gguf/architectures/architecture.h"
#include "export/imatrix/importance.h"
#include "export/mixes/tensor_types.h"
#include "export/table/format.h"

namespace quench {
namespace {

// llama.cpp's class of 70 billion parameters, by its number of layers.
constexpr std::int64_t kWideLayers = 80;

MixModel mix_model(const nn::ModelConfig& config, const GgufArchitecture& architecture) {
  const nn::AttentionSpec attention = config.block(0).attention;
  const std::int64_t key_heads = std::max<std::int64_t>(attention.kv_heads, 1);
  return {.layers = config.num_hidden_layers,
          .heads_per_key_head = attention.heads / key_heads,
          .experts = config.experts.count,
          .wide_values = architecture.wide_values && config.num_hidden_layers == kWideLayers &&
                         attention.heads != attention.kv_heads};
}

// Tensors of the file, and their layers or tables.
struct NamedTensors {
  std::vector<MixTensor> tensors;
  std::vector<std::vector<const ModelTensor*>> parts;  // several experts of one tensor

  NamedTensors(const std::vector<ModelTensor>& all, const nn::ModelConfig& config) {
    std::map<std::string, std::size_t> known;
    for (const ModelTensor& tensor : all) {
      if ((tensor.layer.empty() && !tensor.embedding) || !mtp_part(tensor.name, config).empty()) continue;
      const auto name = matrix_name(tensor, config);
      if (!name) continue;
      const auto [found, is_new] = known.try_emplace(*name, tensors.size());
      if (is_new) {
        tensors.push_back({*name, tensor.shape[1]});
        parts.emplace_back();
      }
      parts[found->second].push_back(&tensor);
    }
  }
};

}  // namespace

void choose_mixed_types(QuantizationRules& rules, const std::vector<ModelTensor>& tensors,
                        const nn::ModelConfig& config) {
  if (rules.planned) return;  // layers that a plan does not name stay in high precision
  const GgufArchitecture* architecture = find_gguf_architecture(config.model_type);
  if (rules.scheme == nullptr || rules.scheme->mix == nullptr || architecture == nullptr) return;
  const GgufMix& mix = *rules.scheme->mix;
  const NamedTensors named(tensors, config);
  const auto types = mix_types(mix, named.tensors, mix_model(config, *architecture), rules.with_importance);
  for (std::size_t i = 0; i < types.size(); ++i) {
    const Scheme* scheme = find_type_scheme(types[i]);
    const MixTensor& tensor = named.tensors[i];
    QUENCH_CHECK_AS(ErrorCode::unsupported, scheme != nullptr, "scheme {}: {} has type {}, which cannot be written",
                    rules.scheme->name, tensor.name, types[i]);
    const Scheme* fits = fitting_scheme(*scheme, tensor.columns);
    const std::string_view written = fits == nullptr ? "" : block_format(*fits->weights.blocks).name;
    QUENCH_CHECK_AS(
        ErrorCode::bad_config, rules.with_importance || !needs_matrix(mix, tensor.name, written),
        "scheme {} stores {} as {}, which needs an importance matrix: name one (--imatrix, export.imatrix), "
        "or calibration data to compute it on (--calibration, export.calibration)",
        rules.scheme->name, tensor.name, written);
    for (const ModelTensor* part : named.parts[i])
      if (!part->embedding)
        rules.mixed.try_emplace(part->layer, scheme);
      else if (rules.embeddings == nullptr && fits != nullptr)  // else in high precision
        rules.embeddings = scheme;
  }
}

const Scheme& require_gguf_scheme(std::string_view name, std::string_view key) {
  const Scheme& scheme = require_scheme(name, key);
  QUENCH_CHECK_AS(ErrorCode::bad_config, scheme.weights.blocks.has_value(),
                  "scheme {} is no type or mix of GGUF files: name one, for example q4_k_m, q4_0 or q3_k", scheme.name);
  return scheme;
}

void choose_gguf_types(recipes::RecipeOptions& options, const recipes::Recipe& recipe, nn::CausalLm& model) {
  if (!recipe.has_key("gguf_scheme")) return;
  const Scheme& scheme = require_gguf_scheme(options.gguf_scheme, "recipe.gguf_scheme");
  const nn::ModelConfig& config = model.config();
  QUENCH_CHECK_AS(ErrorCode::unsupported, find_gguf_architecture(config.model_type) != nullptr,
                  "recipe {}: models of type {} have no GGUF form", recipe.name, config.model_type);
  QuantizationRules rules{.scheme = &scheme, .exclude = {}};
  for (const recipes::LayerRule& rule : options.rules)
    rules.rules.emplace_back(rule.pattern, rule.scheme.empty() ? nullptr : find_scheme(rule.scheme));
  const std::vector<ModelTensor> tensors = model_tensors(model, model.options().dtype);
  std::vector<std::string> layers;
  for (const ModelTensor& tensor : tensors)
    if (!tensor.layer.empty()) layers.push_back(tensor.layer);
  recipes::require_matches(options.rules, layers);
  try {
    apply_format(require_export_format("gguf", "recipe.gguf_scheme"), rules, tensors, config);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_config) throw;
    QUENCH_FAIL(ErrorCode::bad_config,
                "recipe.gguf_scheme {}: some of its types need an importance matrix, without which {} trains; choose "
                "another, for example q2_k, q3_k_s or iq4_xs",
                scheme.name, recipe.name);
  }
  const GgufMix* mix = scheme.mix;
  auto types = std::make_shared<recipes::GgufTypes>();
  for (const auto& [layer, chosen] : chosen_schemes(tensors, rules))
    if (chosen != nullptr) {
      const BlockType type = chosen->weights.blocks.value();
      const GgufMix* of = mix != nullptr ? mix : chosen->mix;
      QUENCH_CHECK_AS(ErrorCode::bad_config, of == nullptr || !needs_matrix(*of, layer, block_format(type).name),
                      "recipe.rules: {} as {} needs an importance matrix, without which {} trains; choose another type",
                      layer, chosen->name, recipe.name);
      (*types)[layer] = type;
    }
  for (const ModelTensor& tensor : tensors) {
    if (!tensor.embedding || rules.embeddings == nullptr) continue;
    const Scheme* fits = fitting_scheme(*rules.embeddings, tensor.shape[1]);
    if (fits != nullptr) (*types)[tensor.name.substr(0, tensor.name.rfind('.'))] = fits->weights.blocks.value();
  }
  options.gguf_types = std::move(types);
}

}  // namespace quench
