#pragma once
// Model config: the members of Hugging Face config.json that families share, and the layers that its family makes of
// them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "core/number/dtype.h"
#include "nn/spec/block_spec.h"

namespace quench::nn {

// Multi-token prediction (MTP, DeepSeek-V3, arXiv:2412.19437, section 2.2): layers after the last decoder layer that
// predict later tokens. They take part in training alone.
struct MtpConfig {
  std::int64_t declared = 0;  // num_nextn_predict_layers
  std::int64_t layers = 0;    // MTP layers of the model: 0 or `declared`; parse_model_config() leaves 0
  BlockSpec block;            // each of them, but for its index
  bool operator==(const MtpConfig&) const = default;
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
  ExpertsSpec experts;                    // experts of the layers that have some; count 0: none
  float router_balance_loss = 0.0f;       // router_aux_loss_coef
  std::optional<RopeScaling> local_rope;  // RoPE of windowed layers; unset: `rope`
  std::int64_t sliding_window = 0;        // keys per query in windowed layers; 0: unlimited
  std::vector<BlockSpec> blocks;          // the decoder layers, as the model executes them
  MtpConfig mtp;
  StreamSpec stream;
  std::optional<std::int64_t> bos_token_id;
  std::optional<std::int64_t> pad_token_id;
  std::vector<std::int64_t> eos_token_ids;
  DType dtype = DType::f32;  // dtype of the stored weights
  std::vector<std::string> unknown_fields;
  Json source;  // export copies uninterpreted members

  // Whether both have the same layers, with weights of the same shapes and the same results; token ids, initial values
  // and dtype may differ.
  [[nodiscard]] bool computes_as(const ModelConfig& other) const;
  // max_position_embeddings, times the factor of dynamic RoPE scaling.
  [[nodiscard]] std::int64_t context_length() const;
  // Decoder layer `layer`; throws invalid_argument if there is none.
  [[nodiscard]] const BlockSpec& block(std::int64_t layer) const;
  // Blocks of MTP layers; their indices follow those of `blocks`.
  [[nodiscard]] std::vector<BlockSpec> mtp_blocks() const;
  // Decoder and MTP layers.
  [[nodiscard]] std::int64_t all_layers() const noexcept { return num_hidden_layers + mtp.layers; }
  // Decoder layers with experts.
  [[nodiscard]] std::int64_t sparse_layers() const;
  // Layers with a router, of `blocks` and mtp_blocks().
  [[nodiscard]] std::int64_t routed_layers() const;
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
