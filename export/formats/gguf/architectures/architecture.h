#pragma once
// A family of models in GGUF files: the entry that says how llama.cpp stores and loads its models, and the table of
// these entries. A family without an entry has no GGUF export.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/json/json.h"
#include "core/system/choice_table.h"
#include "nn/spec/model_config.h"

namespace quench {

// Tensor stems without ".weight" or ".bias": "self_attn.q_proj" and "attn_q" within a layer; with endings if these
// differ.
struct GgufTensorName {
  std::string_view hf, gguf;
};

// Tensors in a layer of Llama and the families with its layers.
inline constexpr GgufTensorName kGgufLayerTensors[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

// Metadata key without the architecture's prefix.
struct GgufNumber {
  std::string_view key;
  std::variant<std::uint32_t, float, bool> value;
};
// A number of a file's metadata, by its key without the prefix; booleans are 0 or 1.
using GgufLookup = std::function<std::optional<double>(std::string_view key)>;

// Everything that differs between families in GGUF files. Several may have one `name`.
struct GgufArchitecture {
  std::string_view model_type = {};   // the family (nn::ModelFamily)
  std::string_view name = {};         // general.architecture, as llama.cpp calls it
  bool interleaved_rotation = false;  // RoPE on adjacent pairs: query and key rows are reordered
  bool bias_is_chosen = false;        // config.json's attention_bias selects biases of attention projections
  // Capabilities of llama.cpp's loader.
  bool output_bias = false;       // bias of attention's output projection
  bool experts = false;           // expert_count and experts in every layer that the problem() below allows
  bool latent_attention = false;  // attn_k_b and attn_v_b in place of kv_b_proj
  // YaRN is stored with its keys even where llama.cpp's rounded bounds differ from the model's; read as not rounded.
  bool unrounded_yarn = false;
  bool free_head_dim = false;     // head_dim * heads may differ from the hidden size
  bool partial_rotation = false;  // rope.dimension_count may be smaller than a head
  bool rope_divisors = false;     // rope_freqs.weight
  bool longrope = false;          // rope_factors_short.weight and rope_factors_long.weight
  std::span<const GgufTensorName> layer_tensors = kGgufLayerTensors;
  // Tokens that llama.cpp cannot load a file without whose general.name is the model type.
  std::span<const std::string_view> tokens_of_name = {};
  float norm_offset = 0.0f;     // files hold norm weights plus this
  bool wide_values = false;     // llama-quantize gives values of models of 80 layers more bits (GgufMix::exceptions)
  bool sliding_window = false;  // the loader executes attention.sliding_window
  bool scales = false;          // and attention.scale, embedding_scale, residual_scale, logit_scale
  // Optional: the scale of attention scores that the loader derives from the sizes. Files hold another one in their
  // weights (export/formats/gguf/query_scale.h).
  double (*score_scale)(const nn::ModelConfig& config) = nullptr;
  // Optional: why llama.cpp would compute this model otherwise, or "".
  std::string (*problem)(const nn::ModelConfig& config) = nullptr;
  // Optional: metadata that other architectures lack, or have with other values.
  std::vector<GgufNumber> (*numbers)(const nn::ModelConfig& config) = nullptr;
  // Optional: completes a config.json that has the sizes.
  void (*read)(const GgufLookup& find, Json& config) = nullptr;
};

// For TableEntries.
[[nodiscard]] inline std::vector<std::string_view> entry_names(const GgufArchitecture& architecture) {
  return {architecture.model_type};
}

// The table (table.cpp): the product's families, then those that Registered<GgufArchitecture> added. A reader takes the
// first that fits a file.
[[nodiscard]] std::span<const GgufArchitecture> gguf_architectures();
// Null for a type without GGUF export.
[[nodiscard]] const GgufArchitecture* find_gguf_architecture(std::string_view model_type);

}  // namespace quench
