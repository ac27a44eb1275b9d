#pragma once
// What a decoder-only model is made of, as Hugging Face's config.json says it.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "core/number/dtype.h"

namespace quench::nn {

// How rotary frequencies are rescaled for sequences longer than those of the pretraining (Hugging Face Transformers,
// modeling_rope_utils).
struct RopeScaling {
  enum class Type { standard, linear, dynamic, yarn, llama3 };
  Type type = Type::standard;
  double theta = 10000.0;
  double factor = 1.0;
  std::int64_t original_max_position_embeddings = 0;  // llama3, yarn
  double low_freq_factor = 1.0;                       // llama3
  double high_freq_factor = 4.0;                      // llama3
  // yarn
  std::optional<double> attention_factor;  // multiplies cosines and sines; unset: from the factor and mscale
  std::optional<double> mscale, mscale_all_dim;
  double beta_fast = 32.0, beta_slow = 1.0;
  bool truncate = true;
};

// Routed experts in place of a feed-forward block, in some or all layers.
struct ExpertsConfig {
  std::int64_t count = 0;              // 0: a dense model
  std::int64_t per_token = 0;          // experts that a token goes to
  std::int64_t intermediate_size = 0;  // of one expert
  bool normalize = false;              // the weights of a token's experts sum to 1, or to `factor`
  bool sigmoid = false;                // scores are sigmoids, each for itself; else a softmax over all experts
  float factor = 1.0f;                 // of the weights
  std::int64_t groups = 1;             // experts stand in groups, of which a token chooses from the best few
  std::int64_t groups_per_token = 1;
  bool expert_bias = false;           // the router has a bias on the choice that no gradient trains
  std::int64_t shared_width = 0;      // of a feed-forward block that all tokens take beside their experts; 0: none
  bool score_before_experts = false;  // weights multiply what experts read, not what they make
  // Checkpoints hold the matrices of all experts of a layer as one tensor [E, in, out], gate and up side by side.
  bool fused_storage = false;
  float balance_loss = 0.0f;  // factor of the load-balancing term in training that config.json asks for
  std::vector<bool> layers;   // which layers have experts
  // Hugging Face names within the layer.
  struct Names {
    std::string_view router = "mlp.gate";
    std::string_view experts = "mlp.experts";
    std::string_view shared = "shared_experts";  // within the feed-forward part
    std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
    std::string_view expert_bias = "mlp.gate.e_score_correction_bias";
  } names;

  [[nodiscard]] bool in_layer(std::int64_t layer) const {
    return layer >= 0 && layer < static_cast<std::int64_t>(layers.size()) && layers[static_cast<std::size_t>(layer)];
  }
  // Layers with experts.
  [[nodiscard]] std::int64_t layer_count() const {
    return static_cast<std::int64_t>(std::count(layers.begin(), layers.end(), true));
  }
};

// Attention whose keys and values come from one narrow vector a token (DeepSeek-V2, arXiv:2405.04434, section 2.1). A
// head's query and key are a part without a position and a rotated one; the latter is the same key for all heads.
struct MlaConfig {
  std::int64_t kv_rank = 0;     // of that vector; 0: the model has no such attention
  std::int64_t query_rank = 0;  // of the queries' own; 0: queries come straight from the hidden state
  std::int64_t nope_dim = 0;    // of a head's query and key: without a position
  std::int64_t rotary_dim = 0;  // rotated, in pairs of neighbours
  std::int64_t value_dim = 0;
  bool bias = false;        // of the projections into and out of the narrow vectors
  bool interleaved = true;  // pairs are (2i, 2i+1); else (i, i + rotary_dim / 2)
  [[nodiscard]] bool enabled() const noexcept { return kv_rank > 0; }
  [[nodiscard]] std::int64_t key_dim() const noexcept { return nope_dim + rotary_dim; }
};

// How layers of one model differ in what their queries see and know of positions (Llama 4, Qwen).
struct LayerAttention {
  std::vector<bool> windowed;     // by layer: the model's sliding window applies; empty: in all
  std::vector<bool> rotated;      // by layer: queries and keys carry rotary positions; empty: in all
  std::vector<bool> chunked;      // by layer: attention stays within chunks; empty: in none
  std::int64_t chunk = 0;         // tokens of a sequence that form one, counted from its start
  bool interleaved = false;       // neighbours are rotated together; else elements half a head apart
  bool unit_norm = false;         // rotated queries and keys are divided by their root mean square
  double temperature = 0.0;       // layers without rotation scale the query at position p by
  double temperature_step = 1.0;  // 1 + temperature * log(1 + floor((p + 1) / temperature_step))

  [[nodiscard]] bool rotates(std::int64_t layer) const {
    return rotated.empty() || rotated[static_cast<std::size_t>(layer)];
  }
  // 0: all keys before the query.
  [[nodiscard]] std::int64_t chunk_of(std::int64_t layer) const {
    return !chunked.empty() && chunked[static_cast<std::size_t>(layer)] ? chunk : 0;
  }
  // The smallest chunk of any layer; 0: there is none.
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
  std::string_view feed_forward = "mlp";  // Hugging Face's name of a layer's feed-forward part
  std::int64_t sliding_window = 0;        // keys that a query sees at most (Mistral, Qwen); 0: all before it
  std::optional<std::int64_t> bos_token_id;
  std::optional<std::int64_t> pad_token_id;
  std::vector<std::int64_t> eos_token_ids;
  DType dtype = DType::f32;                 // of the stored weights
  std::vector<std::string> unknown_fields;  // members of the file that nothing here knows
  Json source;  // the file as read, so that export carries along what Quench does not interpret

  // Positions of the longest sequence: max_position_embeddings, times the factor of a dynamic rescaling.
  [[nodiscard]] std::int64_t context_length() const;
  // Sizes of a head in attention and its cache, and of what is rotated of it.
  [[nodiscard]] std::int64_t attention_dim() const { return mla.enabled() ? mla.key_dim() : head_dim; }
  // Keys that a query of this layer sees at most; 0: all before it.
  [[nodiscard]] std::int64_t window_of(std::int64_t layer) const {
    const std::vector<bool>& windowed = layer_attention.windowed;
    return windowed.empty() || windowed[static_cast<std::size_t>(layer)] ? sliding_window : 0;
  }
  [[nodiscard]] std::int64_t rotary_dim() const { return mla.enabled() ? mla.rotary_dim : head_dim; }
  [[nodiscard]] std::int64_t qkv_rows() const { return (num_attention_heads + 2 * num_key_value_heads) * head_dim; }
  // Elements of all parameters; a tied head counts once.
  [[nodiscard]] std::int64_t parameter_count() const;
  // Those that one token meets: of the experts, the ones that it goes to.
  [[nodiscard]] std::int64_t active_parameter_count() const;
  // Floating-point operations of one token of a training step, forward and backward: 6 per weight of every matrix
  // product (of the experts that a token goes to) plus causal attention over seq_len (counted once, i.e. halved; within
  // the window only). Recomputation is not counted.
  [[nodiscard]] double training_flops_per_token(std::int64_t seq_len) const;
};

// Reads config.json's object. Both spellings of the rotary settings (rope_theta + rope_scaling, and rope_parameters,
// which rope_scaling replaces) and of the dtype are accepted; null equals absent; unknown architectures, unsupported
// features and impossible values are refused with the list of what is known. `source` names the file in errors
// (bad_config).
[[nodiscard]] ModelConfig parse_model_config(const Json& json, std::string_view source);

// The config.json that older and newer readers both load: the source's own members, updated with this config's values.
[[nodiscard]] Json to_hf_json(const ModelConfig& config, DType dtype);

}  // namespace quench::nn
