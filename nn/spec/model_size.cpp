#include "nn/spec/model_config.h"

namespace quench::nn {

namespace {

std::int64_t gemm_weights_of(const AttentionSpec& attention, std::int64_t hidden) {
  const std::int64_t output = attention.heads * attention.value_dim * hidden;
  if (!attention.mla) return (attention.query_width() + 2 * attention.kv_width()) * hidden + output;
  const MlaSpec& mla = *attention.mla;
  const std::int64_t query = attention.query_width();
  return (mla.query_rank > 0 ? mla.query_rank * (hidden + query) : hidden * query) +
         hidden * (mla.kv_rank + mla.rotary_dim) + mla.kv_rank * attention.heads * (mla.nope_dim + mla.value_dim) +
         output;
}

std::int64_t gemm_weights_of(const FeedForwardSpec& part, std::int64_t hidden, std::int64_t experts) {
  if (!part.experts) return 3 * hidden * part.intermediate_size;
  const ExpertsSpec& spec = *part.experts;
  return 3 * hidden * (experts * spec.intermediate_size + spec.shared_width) + spec.count * hidden;
}

std::int64_t qk_norm_weights_of(const AttentionSpec& attention) {
  if (attention.qk_norm == QkNorm::all_heads) return attention.query_width() + attention.kv_width();
  return attention.qk_norm == QkNorm::weighted ? 2 * attention.key_dim : 0;
}

// Number of a sublayer's norms, before and after it.
std::int64_t norms_of(const NormSpec& norm, const std::optional<NormSpec>& post_norm) {
  return (norm.name.empty() ? 0 : 1) + (post_norm ? 1 : 0);
}

// Without the layer's norms.
std::int64_t vector_weights_of(const AttentionSpec& attention, std::int64_t hidden) {
  if (const auto& mla = attention.mla)
    return mla->query_rank + mla->kv_rank + (mla->bias ? mla->query_rank + mla->kv_rank + mla->rotary_dim + hidden : 0);
  return (attention.qkv_bias ? attention.query_width() + 2 * attention.kv_width() : 0) +
         (attention.output_bias ? hidden : 0) + (attention.sinks ? attention.heads : 0) + qk_norm_weights_of(attention);
}

std::int64_t vector_weights_of(const FeedForwardSpec& part, std::int64_t hidden, std::int64_t experts) {
  if (const auto& spec = part.experts)
    return (spec->expert_bias ? spec->count : 0) + (spec->shared_gate ? hidden : 0) +
           (spec->router_bias ? spec->count : 0) + (spec->bias ? experts * (2 * spec->intermediate_size + hidden) : 0);
  return part.bias ? 2 * part.intermediate_size + hidden : 0;
}

// `active`: top-k experts only.
std::int64_t experts_of(const BlockSpec& block, bool active) {
  const auto& experts = block.feed_forward.experts;
  return !experts ? 0 : active ? experts->per_token : experts->count;
}

std::int64_t gemm_weights_of(const BlockSpec& block, std::int64_t hidden, bool active) {
  return gemm_weights_of(block.attention, hidden) +
         gemm_weights_of(block.feed_forward, hidden, experts_of(block, active));
}

std::vector<BlockSpec> trained_blocks(const ModelConfig& c) {
  std::vector<BlockSpec> all = c.blocks;
  for (BlockSpec& block : c.mtp_blocks()) all.push_back(std::move(block));
  return all;
}

// Weights of an MTP layer beyond its block: projection and three norms.
std::int64_t mtp_weights(std::int64_t hidden) {
  return 2 * hidden * hidden + 3 * hidden;
}

std::int64_t parameters(const ModelConfig& c, bool active) {
  const std::int64_t tables = c.vocab_size * c.hidden_size * (c.tie_word_embeddings ? 1 : 2);
  std::int64_t count = tables + c.hidden_size + c.mtp.layers * mtp_weights(c.hidden_size);
  for (const BlockSpec& block : trained_blocks(c))
    count += gemm_weights_of(block, c.hidden_size, active) +
             (norms_of(block.attention.norm, block.attention.post_norm) +
              norms_of(block.feed_forward.norm, block.feed_forward.post_norm)) *
                 c.hidden_size +
             vector_weights_of(block.attention, c.hidden_size) +
             vector_weights_of(block.feed_forward, c.hidden_size, experts_of(block, active));
  return count;
}

// Twice the mean number of keys per query with chunks: one causal triangle per chunk.
double chunk_reach(std::int64_t length, std::int64_t chunk) {
  if (chunk == 0 || length <= chunk) return static_cast<double>(length);
  const auto whole = static_cast<double>(length / chunk), rest = static_cast<double>(length % chunk);
  return (whole * static_cast<double>(chunk) * static_cast<double>(chunk) + rest * rest) / static_cast<double>(length);
}

}  // namespace

std::int64_t ModelConfig::parameter_count() const {
  return parameters(*this, false);
}

std::int64_t ModelConfig::active_parameter_count() const {
  return parameters(*this, true);
}

double ModelConfig::training_flops_per_token(std::int64_t seq_len) const {
  std::int64_t weights = (1 + mtp.layers) * vocab_size * hidden_size + mtp.layers * 2 * hidden_size * hidden_size;
  // Two GEMMs of 2*D*T FLOPs per head and token, halved by the causal mask, times 3. Scores have the width of keys,
  // outputs that of values. A window keeps the scores within its distance from the diagonal.
  const auto length = static_cast<double>(seq_len);
  double scores = 0;
  for (const BlockSpec& block : trained_blocks(*this)) {
    weights += gemm_weights_of(block, hidden_size, true);
    const AttentionSpec& attention = block.attention;
    const auto window = static_cast<double>(attention.window);
    const double reach = window > 0 && window < length ? window * (2 - window / length) : length;
    const double width = static_cast<double>(attention.heads * (attention.key_dim + attention.value_dim)) / 2;
    scores += width * std::min(reach, chunk_reach(seq_len, attention.chunk));
  }
  return 6 * static_cast<double>(weights) + 6 * scores;
}

}  // namespace quench::nn
