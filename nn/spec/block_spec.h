#pragma once
// A decoder layer as data: a value that its family's entry (nn/spec/model_family.h) makes from config.json. Factors
// have the precision of config.json; modules round them to f32.

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/ops/gated_activation.h"
#include "core/ops/norm.h"

namespace quench {

constexpr bool operator==(const RmsNormForm& a, const RmsNormForm& b) {
  return a.eps == b.eps && a.weight_offset == b.weight_offset && a.f32_weight == b.f32_weight;
}
constexpr bool operator==(const ClampedUnit& a, const ClampedUnit& b) {
  return a.slope == b.slope && a.limit == b.limit;
}

}  // namespace quench

namespace quench::nn {

class SubLayer;
struct BlockSpec;
struct ModelConfig;
struct ParameterOptions;

// Constructs the attention or feed-forward module of a block.
using SubLayerFactory = std::unique_ptr<SubLayer> (*)(const ModelConfig& config, const BlockSpec& block,
                                                      const ParameterOptions& options);

// RoPE scaling (Hugging Face Transformers, modeling_rope_utils).
struct RopeScaling {
  enum class Type { standard, linear, dynamic, yarn, llama3, longrope };
  Type type = Type::standard;
  double theta = 10000.0;
  double factor = 1.0;
  std::int64_t original_max_position_embeddings = 0;  // llama3, yarn, longrope
  double low_freq_factor = 1.0;                       // llama3
  double high_freq_factor = 4.0;                      // llama3
  // Share of a head that is rotated, its first elements; the rest is copied.
  double partial_rotary_factor = 1.0;
  // longrope (arXiv:2402.13753): divisors of the frequencies, by pair, in sequences up to the original length and
  // beyond
  std::vector<double> short_factors, long_factors;
  // yarn, longrope: factor on cosines and sines; unset: from the factor, mscale or the original length
  std::optional<double> attention_factor;
  // yarn
  std::optional<double> mscale, mscale_all_dim;
  double beta_fast = 32.0, beta_slow = 1.0;
  bool truncate = true;
  // Rotated elements of a head, rounded down as in Transformers.
  [[nodiscard]] std::int64_t rotated(std::int64_t head_dim) const noexcept {
    return static_cast<std::int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
  }
  bool operator==(const RopeScaling&) const = default;
};

// RMSNorm around a sublayer, or at the end of the model.
struct NormSpec {
  std::string_view name;  // Hugging Face module; "": no norm
  RmsNormForm form = 1e-6f;
  bool operator==(const NormSpec&) const = default;
};

struct RotarySpec {
  RopeScaling scaling;
  std::int64_t dim = 0;            // rotated elements of a head, its first
  std::int64_t max_positions = 0;  // max_position_embeddings: the length from which dynamic scaling applies
  bool interleaved = false;        // pairs are (2i, 2i+1); else (i, i + dim / 2)
  bool operator==(const RotarySpec&) const = default;
};

// The query at position p is multiplied by 1 + scale * log(1 + floor((p + 1) / step)).
struct QueryTemperature {
  double scale = 0.0;
  double step = 1.0;
  bool operator==(const QueryTemperature&) const = default;
};

// RMSNorm of queries and keys, in AttentionSpec::qk_form.
enum class QkNorm {
  none,
  weighted,   // q_norm and k_norm of each head, before RoPE
  all_heads,  // q_norm of all query heads at once, k_norm of all key heads, before RoPE (OLMo 2)
  unweighted  // RMSNorm of each head without weight, after RoPE
};

// MLA (DeepSeek-V2, arXiv:2405.04434, section 2.1). A head's query and key have a part without position and a rotated
// part, whose key is common to all heads.
struct MlaSpec {
  std::int64_t kv_rank = 0;
  std::int64_t query_rank = 0;  // 0: projected directly from the hidden state
  std::int64_t nope_dim = 0;    // head width without position
  std::int64_t rotary_dim = 0;
  std::int64_t value_dim = 0;
  bool bias = false;       // biases of the low-rank projections and the output projection
  float norm_eps = 1e-6f;  // independent of rms_norm_eps, as in Transformers' DeepseekV3Attention
  [[nodiscard]] std::int64_t key_dim() const noexcept { return nope_dim + rotary_dim; }
  bool operator==(const MlaSpec&) const = default;
};

struct AttentionSpec {
  SubLayerFactory make = nullptr;
  NormSpec norm;                      // applied before the sublayer
  std::optional<NormSpec> post_norm;  // applied after it, before the sum with the stream
  std::int64_t heads = 0, kv_heads = 0;
  std::int64_t key_dim = 0, value_dim = 0;  // per head
  double scale = 1.0;                       // factor of the scores
  double soft_cap = 0.0;                    // AttentionArgs::soft_cap
  bool sinks = false;                       // AttentionArgs::sinks, learned
  std::int64_t window = 0;                  // keys per query; 0: unlimited
  std::int64_t chunk = 0;                   // attention within chunks counted from the sequence start; 0: none
  std::optional<RotarySpec> rotary;
  std::optional<QueryTemperature> temperature;  // query scaling in layers without RoPE
  QkNorm qk_norm = QkNorm::none;
  RmsNormForm qk_form = 1e-6f;
  bool qkv_bias = false, output_bias = false;
  bool fused_storage = false;  // checkpoints hold the three input projections as qkv_proj
  std::optional<MlaSpec> mla;  // else grouped-query attention, key_dim == value_dim

  [[nodiscard]] std::int64_t query_width() const noexcept { return heads * key_dim; }
  [[nodiscard]] std::int64_t kv_width() const noexcept { return kv_heads * key_dim; }
  bool operator==(const AttentionSpec&) const = default;
};

struct ExpertsSpec {
  std::int64_t count = 0;
  std::int64_t per_token = 0;          // top-k
  std::int64_t intermediate_size = 0;  // width of one expert
  bool normalize = false;              // router weights sum to 1, or to `factor`
  bool sigmoid = false;                // sigmoid scores; else a softmax over all experts
  float factor = 1.0f;                 // factor of the router weights
  std::int64_t groups = 1;             // a token selects from its best groups_per_token groups
  std::int64_t groups_per_token = 1;
  bool expert_bias = false;            // not trained by gradients
  std::int64_t shared_width = 0;       // width of the shared expert; 0: none
  bool score_before_experts = false;   // router weights multiply expert inputs
  bool bias = false;                   // biases of the experts' projections
  bool router_bias = false;            // bias of the router's logits
  std::optional<ClampedUnit> clamped;  // in place of SwiGLU, in the experts
  // Checkpoints hold [E, in, out], gate and up concatenated.
  bool fused_storage = false;
  bool interleaved_storage = false;  // with fused_storage: columns of gate and up alternate
  bool shared_gate = false;          // the shared expert's output is multiplied by a sigmoid of its own logit
  struct Names {
    std::string_view router = "mlp.gate";
    std::string_view experts = "mlp.experts";
    std::string_view shared = "shared_experts";  // within the feed-forward module
    std::string_view shared_gate = "shared_expert_gate";
    std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
    std::string_view expert_bias = "mlp.gate.e_score_correction_bias";
    bool operator==(const Names&) const = default;
  } names;
  bool operator==(const ExpertsSpec&) const = default;
};

struct FeedForwardSpec {
  SubLayerFactory make = nullptr;
  NormSpec norm;                                       // applied before the sublayer
  std::optional<NormSpec> post_norm;                   // applied after it, before the sum with the stream
  std::string_view name = "mlp";                       // Hugging Face module
  std::int64_t intermediate_size = 0;                  // width of a dense layer
  bool bias = false;                                   // biases of a dense layer and the shared expert
  GatedActivation activation = GatedActivation::silu;  // activation function of a dense layer
  bool fused_storage = false;                          // checkpoints hold gate and up of a dense layer as gate_up_proj
  std::optional<ExpertsSpec> experts;

  // Features between the projections, of a token's experts; without the shared expert.
  [[nodiscard]] std::int64_t active_width() const noexcept {
    return experts ? experts->per_token * experts->intermediate_size : intermediate_size;
  }
  bool operator==(const FeedForwardSpec&) const = default;
};

// Layer on the residual stream: x += m * post_norm(attention(norm(x))), then the same with feed_forward.
struct BlockSpec {
  std::int64_t layer = 0;
  double residual_multiplier = 1.0;  // m
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
  bool operator==(const BlockSpec&) const = default;
};

// Around the layers.
struct StreamSpec {
  NormSpec norm{"norm"};                 // final
  double embedding_scale = 1.0;          // factor of the embedding's rows
  bool embedding_scale_rounded = false;  // to the dtype of the rows, as Transformers' Gemma does
  double logits_scale = 1.0;
  double logits_soft_cap = 0.0;  // after the scale; 0: none
  bool operator==(const StreamSpec&) const = default;
};

}  // namespace quench::nn
