
#include "nn/model_config.h"

namespace quench::nn {

namespace {

// Weights in all layers, with `experts` experts in MoE layers.
std::int64_t feed_forward_weights(const ModelConfig& c, std::int64_t experts) {
  const std::int64_t sparse = c.experts.layer_count(), dense = c.num_hidden_layers - sparse;
  const std::int64_t expert = 3 * c.hidden_size * c.experts.intermediate_size;
  const std::int64_t shared = 3 * c.hidden_size * c.experts.shared_width;
  return dense * 3 * c.hidden_size * c.intermediate_size +
         sparse * (experts * expert + shared + c.experts.count * c.hidden_size);
}

// Weights of one layer.
std::int64_t attention_weights(const ModelConfig& c) {
  if (!c.mla.enabled()) return c.qkv_rows() * c.hidden_size + c.hidden_size * c.num_attention_heads * c.head_dim;
  const MlaConfig& l = c.mla;
  const std::int64_t heads = c.num_attention_heads;
  const std::int64_t query =
      l.query_rank > 0 ? l.query_rank * (c.hidden_size + heads * l.key_dim()) : c.hidden_size * heads * l.key_dim();
  return query + c.hidden_size * (l.kv_rank + l.rotary_dim) + l.kv_rank * heads * (l.nope_dim + l.value_dim) +
         heads * l.value_dim * c.hidden_size;
}

// Biases and norms of one layer.
std::int64_t attention_vectors(const ModelConfig& c) {
  if (!c.mla.enabled())
    return (c.qkv_bias ? c.qkv_rows() : 0) + (c.output_bias ? c.hidden_size : 0) + (c.qk_norm ? 2 * c.head_dim : 0);
  const MlaConfig& l = c.mla;
  return l.query_rank + l.kv_rank + (l.bias ? l.query_rank + l.kv_rank + l.rotary_dim + c.hidden_size : 0);
}

std::int64_t parameters(const ModelConfig& c, std::int64_t experts) {
  const std::int64_t mlp_bias = c.mlp_bias ? 2 * c.intermediate_size + c.hidden_size : 0;
  const std::int64_t tables = c.vocab_size * c.hidden_size * (c.tie_word_embeddings ? 1 : 2);
  const std::int64_t expert_bias = c.experts.expert_bias ? c.experts.layer_count() * c.experts.count : 0;
  return c.num_hidden_layers * (attention_weights(c) + attention_vectors(c) + mlp_bias + 2 * c.hidden_size) +
         feed_forward_weights(c, experts) + expert_bias + tables + c.hidden_size;
}

// Twice the mean number of keys per query with chunks: one causal triangle per chunk.
double chunk_reach(std::int64_t length, std::int64_t chunk) {
  if (chunk == 0 || length <= chunk) return static_cast<double>(length);
  const auto whole = static_cast<double>(length / chunk), rest = static_cast<double>(length % chunk);
  return (whole * static_cast<double>(chunk) * static_cast<double>(chunk) + rest * rest) / static_cast<double>(length);
}

}  // namespace

std::int64_t ModelConfig::parameter_count() const {
  return parameters(*this, experts.count);
}

std::int64_t ModelConfig::active_parameter_count() const {
  return parameters(*this, experts.per_token);
}

double ModelConfig::training_flops_per_token(std::int64_t seq_len) const {
  const auto h = static_cast<double>(hidden_size);
  // Scores have the width of keys, outputs that of values.
  const std::int64_t value_dim = mla.enabled() ? mla.value_dim : head_dim;
  const double heads_width = static_cast<double>(num_attention_heads * (attention_dim() + value_dim)) / 2;
  const double products = static_cast<double>(num_hidden_layers * attention_weights(*this)) +
                          static_cast<double>(feed_forward_weights(*this, experts.per_token)) +
                          h * static_cast<double>(vocab_size);
  // Two GEMMs of 2*D*T FLOPs per head and token, halved by the causal mask, times 3. A window keeps the scores within
  // its distance from the diagonal.
  const auto length = static_cast<double>(seq_len);
  double attention = 0;
  for (std::int64_t layer = 0; layer < num_hidden_layers; ++layer) {
    const auto window = static_cast<double>(window_of(layer));
    const double reach = window > 0 && window < length ? window * (2 - window / length) : length;
    attention += heads_width * std::min(reach, chunk_reach(seq_len, layer_attention.chunk_of(layer)));
  }
  return 6 * products + 6 * attention;
}

}  // namespace quench::nn
