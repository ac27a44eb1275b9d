#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "core/number/dtype.h"

namespace quench::nn {

// RoPE scaling (Hugging Face Transformers, modeling_rope_utils).
struct RopeScaling {
  enum class Type { standard, linear, dynamic, yarn, llama3 };
  Type type = Type::standard;
  double theta = 10000.0;
  double factor = 1.0;
  std::int64_t original_max_position_embeddings = 0;  // llama3, yarn
  double low_freq_factor = 1.0;                       // llama3
  double high_freq_factor = 4.0;                      // llama3
  // yarn
  std::optional<double> attention_factor;  // factor on cosines and sines; unset: from the factor and mscale
  std::optional<double> mscale, mscale_all_dim;
  double beta_fast = 32.0, beta_slow = 1.0;
  bool truncate = true;
};

struct ExpertsConfig {
  std::int64_t count = 0;              // 0: a dense model
  std::int64_t per_token = 0;          // top-k
  std::int64_t intermediate_size = 0;  // of one expert
  bool normalize = false;              // router weights sum to 1, or to `factor`
  bool sigmoid = false;                // sigmoid scores; else a softmax over all experts
  float factor = 1.0f;                 // of the router weights
  std::int64_t groups = 1;             // a token selects from its best groups_per_token groups
  std::int64_t groups_per_token = 1;
  bool expert_bias = false;           // not trained by gradients
  std::int64_t shared_width = 0;      // of the shared expert; 0: none
  bool score_before_experts = false;  // router weights multiply expert inputs
  // Checkpoints hold [E, in, out], gate and up concatenated.
  bool fused_storage = false;
  float balance_loss = 0.0f;  // of config.json
  std::vector<bool> layers;   // MoE layers
  struct Names {
    std::string_view router = "mlp.gate";
    std::string_view experts = "mlp.experts";
    std::string_view shared = "shared_experts";  // within the feed-forward module
    std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
    std::string_view expert_bias = "mlp.gate.e_score_correction_bias";
  } names;

  [[nodiscard]] bool in_layer(std::int64_t layer) const {
    return layer >= 0 && layer < static_cast<std::int64_t>(layers.size()) && layers[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] std::int64_t layer_count() const {
    return static_cast<std::int64_t>(std::count(layers.begin(), layers.end(), true));
  }
};

// MLA (DeepSeek-V2, arXiv:2405.04434, section 2.1). A head's query and key have a part without position and a rotated
// part, whose key is common to all heads.
struct MlaConfig {
  std::int64_t kv_rank = 0;     // 0: no MLA
  std::int64_t query_rank = 0;  // 0: projected directly from the hidden state
  std::int64_t nope_dim = 0;    // head width without position
  std::int64_t rotary_dim = 0;
  std::int64_t value_dim = 0;
  bool bias = false;        // of the low-rank projections
  bool interleaved = true;  // pairs are (2i, 2i+1); else (i, i + rotary_dim / 2)
  [[nodiscard]] bool enabled() const noexcept { return kv_rank > 0; }
  [[nodiscard]] std::int64_t key_dim() const noexcept { return nope_dim + rotary_dim; }
};

// Per-layer attention (Llama 4, Qwen).
struct LayerAttention {
  std::vector<bool> windowed;     // empty: in all layers
  std::vector<bool> rotated;      // RoPE; empty: in all layers
  std::vector<bool> chunked;      // empty: in no layer
  std::int64_t chunk = 0;         // counted from the sequence start
  bool interleaved = false;       // adjacent pairs; else elements half a head apart
  bool unit_norm = false;         // RMS-normalises rotated queries and keys, without a weight
  double temperature = 0.0;       // layers without rotation scale the query at position p by
  double temperature_step = 1.0;  // 1 + temperature * log(1 + floor((p + 1) / temperature_step))

  [[nodiscard]] bool rotates(std::int64_t layer) const {
    return rotated.empty() || rotated[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] std::int64_t chunk_of(std::int64_t layer) const {
    return !chunked.empty() && chunked[static_cast<std::size_t>(layer)] ? chunk : 0;
  }
  // 0: none.
  [[nodiscard]] std::int64_t smallest_chunk() const {
    return std::count(chunked.begin(), chunked.end(), true) > 0 ? chunk : 0;
  }
  [[nodiscard]] bool scales_queries() const {
    return temperature != 0.0 && std::count(rotated.begin(), rotated.end(), false) > 0;
  }
};

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
  bool qk_norm = false;  // Qwen3
  ExpertsConfig experts;
  MlaConfig mla;
  LayerAttention layer_attention;
  std::string_view feed_forward = "mlp";  // Hugging Face name
  std::int64_t sliding_window = 0;        // keys per query (Mistral, Qwen); 0: unlimited
  std::optional<std::int64_t> bos_token_id;
  std::optional<std::int64_t> pad_token_id;
  std::vector<std::int64_t> eos_token_ids;
  DType dtype = DType::f32;  // of the stored weights
  std::vector<std::string> unknown_fields;
  Json source;  // export copies uninterpreted members

  // max_position_embeddings, times the factor of dynamic RoPE scaling.
  [[nodiscard]] std::int64_t context_length() const;
  [[nodiscard]] std::int64_t attention_dim() const { return mla.enabled() ? mla.key_dim() : head_dim; }
  // 0: unlimited.
  [[nodiscard]] std::int64_t window_of(std::int64_t layer) const {
    const std::vector<bool>& windowed = layer_attention.windowed;
    return windowed.empty() || windowed[static_cast<std::size_t>(layer)] ? sliding_window : 0;
  }
  [[nodiscard]] std::int64_t rotary_dim() const { return mla.enabled() ? mla.rotary_dim : head_dim; }
  [[nodiscard]] std::int64_t qkv_rows() const { return (num_attention_heads + 2 * num_key_value_heads) * head_dim; }
  // A tied head counts once.
  [[nodiscard]] std::int64_t parameter_count() const;
  // Top-k experts only.
  [[nodiscard]] std::int64_t active_parameter_count() const;
  // Training FLOPs per token, forward and backward: 6 per weight of every GEMM (top-k experts only) plus causal
  // attention (halved; within the window only). Excludes recompute.
  [[nodiscard]] double training_flops_per_token(std::int64_t seq_len) const;
};

// Parses config.json. Accepts both spellings of the RoPE settings (rope_theta + rope_scaling; rope_parameters, which
// rope_scaling overrides) and of the dtype; null equals absent. Throws bad_config for unknown architectures,
// unsupported features and invalid values.
[[nodiscard]] ModelConfig parse_model_config(const Json& json, std::string_view source);

// For older and newer readers; keeps uninterpreted members.
[[nodiscard]] Json to_hf_json(const ModelConfig& config, DType dtype);

}  // namespace quench::nn
