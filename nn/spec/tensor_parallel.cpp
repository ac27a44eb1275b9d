#include "nn/spec/tensor_parallel.h"

namespace quench::nn {
namespace {

std::string indivisible(std::string_view key, std::int64_t size, std::int64_t ranks) {
  return size % ranks == 0 ? std::string() : fmt::format("{} {} is not divisible by {}", key, size, ranks);
}

std::string block_fault(const BlockSpec& block, std::int64_t ranks) {
  const AttentionSpec& attention = block.attention;
  if (attention.mla) return "latent attention (kv_lora_rank) cannot be split by heads yet";
  if (attention.qk_norm == QkNorm::all_heads)
    return "norms over all query and key heads at once (OLMo 2) cannot be split by heads";
  if (attention.output_bias || block.feed_forward.bias)
    return "biases of output projections (attention_bias, mlp_bias) are not split yet";
  if (attention.fused_storage || block.feed_forward.fused_storage)
    return "projections that checkpoints hold fused (qkv_proj, gate_up_proj) are not split yet";
  if (block.feed_forward.experts) return "experts (num_experts) are not split yet; use parallel.expert";
  for (std::string fault : {indivisible("num_attention_heads", attention.heads, ranks),
                            indivisible("num_key_value_heads", attention.kv_heads, ranks),
                            indivisible("intermediate_size", block.feed_forward.intermediate_size, ranks)})
    if (!fault.empty()) return fault;
  return {};
}

}  // namespace

std::string tensor_parallel_fault(const ModelConfig& config, std::int64_t ranks) {
  if (ranks == 1) return {};
  if (std::string fault = indivisible("vocab_size", config.vocab_size, ranks); !fault.empty()) return fault;
  for (const BlockSpec& block : config.blocks)
    if (std::string fault = block_fault(block, ranks); !fault.empty()) return fault;
  if (config.mtp.layers > 0) return "multi-token prediction (num_nextn_predict_layers) is not split yet";
  return {};
}

}  // namespace quench::nn
