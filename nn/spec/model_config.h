#pragma once
// Model config: Hugging Face config.json, and the blocks that its family derives from it.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "core/number/dtype.h"
#include "nn/spec/block_spec.h"

namespace quench::nn {

// Experts in config.json; what a layer executes is its BlockSpec.
struct ExpertsConfig : ExpertsSpec {
  float balance_loss = 0.0f;
  std::vector<bool> layers;  // MoE layers

  [[nodiscard]] bool in_layer(std::int64_t layer) const {
    return layer >= 0 && layer < static_cast<std::int64_t>(layers.size()) && layers[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] std::int64_t layer_count() const {
    return static_cast<std::int64_t>(std::count(layers.begin(), layers.end(), true));
  }
};

// Multi-head latent attention of config.json.
struct MlaConfig : MlaSpec {
  bool interleaved = true;  // RotarySpec::interleaved
};

// Per-layer attention (Llama 4, Qwen).
struct LayerAttention {
  std::vector<bool> windowed;  // empty: in all layers
  std::vector<bool> rotated;   // RoPE; empty: in all layers
  std::vector<bool> chunked;   // empty: in no layer
  std::int64_t chunk = 0;      // AttentionSpec::chunk
  bool unit_norm = false;      // QkNorm::unweighted in rotated layers
  double temperature = 0.0;    // QueryTemperature in layers without RoPE; 0: none
  double temperature_step = 1.0;
};

// Factors and soft caps of config.json; what a layer executes is in BlockSpec and StreamSpec.
struct ScaleConfig {
  double attention = 0.0;           // factor of the scores; 0: 1 / sqrt(head_dim)
  double attention_soft_cap = 0.0;  // 0: none
  double embedding = 1.0;
  double residual = 1.0;
  double logits = 1.0;
  double logits_soft_cap = 0.0;  // 0: none
};

// Multi-token prediction (MTP, DeepSeek-V3, arXiv:2412.19437, section 2.2): layers after the last decoder layer that
// predict later tokens. They take part in training alone.
struct MtpConfig {
  std::int64_t declared = 0;  // num_nextn_predict_layers
  std::int64_t layers = 0;    // MTP layers of the model: 0 or `declared`; parse_model_config() leaves 0
};

// Hugging Face config.json of a text model.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  std::string model_type;    // "llama"
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 2048;
  float rms_norm_eps = 1e-6f;
  float initializer_range = 0.02f;
  RopeScaling rope;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;     // Qwen2, and Llama with attention_bias
  bool output_bias = false;  // o_proj, Llama with attention_bias
  bool mlp_bias = false;
  ExpertsConfig experts;
  MlaConfig mla;
  MtpConfig mtp;
  LayerAttention layer_attention;
  ScaleConfig scales;
  std::optional<RopeScaling> local_rope;  // RoPE of windowed layers; unset: `rope`
  std::int64_t sliding_window = 0;        // keys per query (Mistral, Qwen); 0: unlimited
  std::optional<std::int64_t> bos_token_id;
  std::optional<std::int64_t> pad_token_id;
  std::vector<std::int64_t> eos_token_ids;
  DType dtype = DType::f32;  // dtype of the stored weights
  std::vector<std::string> unknown_fields;
  Json source;  // export copies uninterpreted members

  // max_position_embeddings, times the factor of dynamic RoPE scaling.
  [[nodiscard]] std::int64_t context_length() const;
  // Layer `layer` as its family executes it. Throws invalid_argument for an unknown architecture.
  [[nodiscard]] BlockSpec block(std::int64_t layer) const;
  [[nodiscard]] std::vector<BlockSpec> blocks() const;
  // Blocks of MTP layers; their indices follow those of blocks().
  [[nodiscard]] std::vector<BlockSpec> mtp_blocks() const;
  // Decoder and MTP layers.
  [[nodiscard]] std::int64_t all_layers() const noexcept { return num_hidden_layers + mtp.layers; }
  // Layers with a router, of blocks() and mtp_blocks().
  [[nodiscard]] std::int64_t routed_layers() const;
  [[nodiscard]] StreamSpec stream() const;
  // With MTP layers. A tied head counts once.
  [[nodiscard]] std::int64_t parameter_count() const;
  // Top-k experts only.
  [[nodiscard]] std::int64_t active_parameter_count() const;
  // Training FLOPs per token, forward and backward: 6 per weight of every GEMM (top-k experts only) plus causal
  // attention (halved; within the window only). Each MTP layer has GEMMs of the head too. Excludes recompute.
  [[nodiscard]] double training_flops_per_token(std::int64_t seq_len) const;
};

// Parses config.json. Accepts both spellings of the RoPE settings (rope_theta + rope_scaling; rope_parameters, which
// rope_scaling overrides) and of the dtype; null equals absent. Throws bad_config for unknown architectures,
// unsupported features and invalid values.
[[nodiscard]] ModelConfig parse_model_config(const Json& json, std::string_view source);

// For older and newer readers; keeps uninterpreted members.
[[nodiscard]] Json to_hf_json(const ModelConfig& config, DType dtype);

}  // namespace quench::nn
