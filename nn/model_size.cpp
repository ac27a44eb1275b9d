// Parameters and floating-point operations of a model.

#include "nn/model_config.h"

namespace quench::nn {

std::int64_t ModelConfig::parameter_count() const {
  const std::int64_t qkv = qkv_rows() * hidden_size + (qkv_bias ? qkv_rows() : 0);
  const std::int64_t output = hidden_size * num_attention_heads * head_dim + (output_bias ? hidden_size : 0);
  const std::int64_t mlp = 3 * hidden_size * intermediate_size + (mlp_bias ? 2 * intermediate_size + hidden_size : 0);
  const std::int64_t norms = 2 * hidden_size + (qk_norm ? 2 * head_dim : 0);
  const std::int64_t tables = vocab_size * hidden_size * (tie_word_embeddings ? 1 : 2);
  return num_hidden_layers * (qkv + output + mlp + norms) + tables + hidden_size;
}

double ModelConfig::training_flops_per_token(std::int64_t seq_len) const {
  const auto h = static_cast<double>(hidden_size);
  const double heads_width = static_cast<double>(num_attention_heads * head_dim);
  const double layer =
      h * static_cast<double>(qkv_rows()) + h * heads_width + 3 * h * static_cast<double>(intermediate_size);
  const double products = static_cast<double>(num_hidden_layers) * layer + h * static_cast<double>(vocab_size);
  // Two products of 2*D*T per head and token, halved by the mask, times 3 for forward and backward.
  // A window leaves of the triangle of T^2/2 scores what lies no further than it from the diagonal.
  const auto length = static_cast<double>(seq_len), window = static_cast<double>(sliding_window);
  const double reach = sliding_window > 0 && window < length ? window * (2 - window / length) : length;
  const double attention = static_cast<double>(num_hidden_layers) * heads_width * reach;
  return 6 * products + 6 * attention;
}

}  // namespace quench::nn
