// Parameters and floating-point operations of a model.

#include "nn/model_config.h"

namespace quench::nn {

namespace {

// Weights of the feed-forward parts of all layers, with `experts` experts in those that have some.
std::int64_t feed_forward_weights(const ModelConfig& c, std::int64_t experts) {
  const std::int64_t sparse = c.experts.layer_count(), dense = c.num_hidden_layers - sparse;
  const std::int64_t expert = 3 * c.hidden_size * c.experts.intermediate_size;
  return dense * 3 * c.hidden_size * c.intermediate_size +
         sparse * (experts * expert + c.experts.count * c.hidden_size);
}

std::int64_t parameters(const ModelConfig& c, std::int64_t experts) {
  const std::int64_t qkv = c.qkv_rows() * c.hidden_size + (c.qkv_bias ? c.qkv_rows() : 0);
  const std::int64_t output = c.hidden_size * c.num_attention_heads * c.head_dim + (c.output_bias ? c.hidden_size : 0);
  const std::int64_t mlp_bias = c.mlp_bias ? 2 * c.intermediate_size + c.hidden_size : 0;
  const std::int64_t norms = 2 * c.hidden_size + (c.qk_norm ? 2 * c.head_dim : 0);
  const std::int64_t tables = c.vocab_size * c.hidden_size * (c.tie_word_embeddings ? 1 : 2);
  return c.num_hidden_layers * (qkv + output + mlp_bias + norms) + feed_forward_weights(c, experts) + tables +
         c.hidden_size;
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
  const double heads_width = static_cast<double>(num_attention_heads * head_dim);
  const double layer = h * static_cast<double>(qkv_rows()) + h * heads_width;
  const double products = static_cast<double>(num_hidden_layers) * layer +
                          static_cast<double>(feed_forward_weights(*this, experts.per_token)) +
                          h * static_cast<double>(vocab_size);
  // Two products of 2*D*T per head and token, halved by the mask, times 3 for forward and backward.
  // A window leaves of the triangle of T^2/2 scores what lies no further than it from the diagonal.
  const auto length = static_cast<double>(seq_len), window = static_cast<double>(sliding_window);
  const double reach = sliding_window > 0 && window < length ? window * (2 - window / length) : length;
  const double attention = static_cast<double>(num_hidden_layers) * heads_width * reach;
  return 6 * products + 6 * attention;
}

}  // namespace quench::nn
