// KV caches of codes under attention of every kind.

#include "nn/attention/kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/decoder/causal_lm.h"

namespace quench::nn {
namespace {

constexpr std::int64_t kTokens = 40, kVocabulary = 48;

ModelConfig config_of(const char* more) {
  Json json = Json::parse(R"({"model_type": "llama", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 48,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2})");
  const Json changes = Json::parse(more);
  for (const auto& [key, value] : changes.as_object()) json.set(key, value);
  return parse_model_config(json, "config.json");
}

constexpr std::array kFamilies = {
    "{}",
    R"({"num_key_value_heads": 4})",
    R"({"model_type": "qwen3"})",
    R"({"model_type": "mistral", "sliding_window": 9})",
    R"({"model_type": "gemma2", "sliding_window": 8, "head_dim": 8, "query_pre_attn_scalar": 8,
        "attn_logit_softcapping": 5.0, "final_logit_softcapping": 30.0})",
    R"({"model_type": "deepseek_v3", "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16,
        "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 8, "n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 2})"};

Tensor ids() {
  std::vector<std::int32_t> tokens(kTokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>((i * i + 5 * i) % kVocabulary);
  return Tensor::from_values<std::int32_t>({kTokens}, tokens);
}

// Logits of every token; in pieces through the cache, if there is one.
std::vector<float> logits(const CausalLm& model, KvCache* cache, std::int64_t piece) {
  const autograd::NoGrad no_grad;
  const ForwardContext all = model.make_context({{0, kTokens, 0, kTokens}}, kTokens);
  std::vector<float> result;
  for (std::int64_t begin = 0; begin < kTokens; begin += piece) {
    const std::int64_t count = std::min(piece, kTokens - begin);
    ForwardContext context = model.make_context({{0, count, 0, begin + count}}, all.positions.narrow(0, begin, count));
    context.cache = cache;
    const Tensor rows = model.logits(model.hidden(ids().narrow(0, begin, count), context));
    result.insert(result.end(), rows.data<float>(), rows.data<float>() + rows.numel());
  }
  return result;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / norm);
}

TEST(KvCache, CodesOfEveryFamilyGiveNearlyTheLogitsWithoutACache) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    CausalLm model(config_of(family), {});
    model.initialize(5);
    const std::vector<float> exact = logits(model, nullptr, kTokens);
    for (const KvFormat& format : kv_formats()) {
      model.set_kv_cache({.format = &format, .scales = {}});
      KvCache tokens = model.make_cache(kTokens), pieces = model.make_cache(kTokens + 3);
      const std::vector<float> one = logits(model, &tokens, 1), some = logits(model, &pieces, 17);
      EXPECT_LT(relative_error(one, exact), format.codes == DType::i8 ? 0.025 : 0.06) << format.name;
      EXPECT_GT(relative_error(one, exact), 1e-6) << "the codes are read";
      // Values at the border of two codes may fall on either side.
      EXPECT_LT(relative_error(some, one), format.codes == DType::i8 ? 0.01 : 0.03) << format.name;
    }
  }
}

TEST(KvCache, CalibratedScalesAreThoseOfEachLayer) {
  CausalLm model(config_of("{}"), {});
  model.initialize(5);
  const std::vector<float> exact = logits(model, nullptr, kTokens);
  std::vector<Tensor> scales;
  for (int layer = 0; layer < 2; ++layer)
    scales.push_back(Tensor::from_values<float>({4}, std::array{0.02f, 0.02f, 0.02f, 0.02f}));
  model.set_kv_cache({.format = &kv_formats().front(), .scales = scales});
  KvCache cache = model.make_cache(kTokens);
  EXPECT_LT(relative_error(logits(model, &cache, 1), exact), 0.06);
  EXPECT_EQ(cache.scales(1).shape(), Shape{4});
  scales.pop_back();
  model.set_kv_cache({.format = &kv_formats().front(), .scales = scales});
  EXPECT_THROW((void)model.make_cache(4), Error);
}

TEST(KvCache, CodesTakeHalfTheBytes) {
  const ModelConfig config = config_of(R"({"head_dim": 64})");
  const KvFormat& format = kv_formats().front();
  const std::int64_t plain = KvCache::bytes_per_token(config, DType::bf16);
  EXPECT_EQ(plain, 2 * 2 * 2 * 64 * 2);
  const std::vector<Tensor> scales(2, Tensor::zeros({4}, DType::f32));
  EXPECT_EQ(KvCache::bytes_per_token(config, DType::bf16, {.format = &format, .scales = scales}), plain / 2);
  EXPECT_EQ(KvCache::bytes_per_token(config, DType::bf16, {.format = &format, .scales = {}}), plain / 2 + 2 * 4 * 4)
      << "dynamic scales";
  CausalLm model(config, {.dtype = DType::bf16});
  model.set_kv_cache({.format = &format, .scales = {}});
  const KvCache cache = model.make_cache(10);
  std::uint64_t bytes = 0;
  for (std::int64_t layer = 0; layer < 2; ++layer) bytes += cache.rows(layer).nbytes() + cache.scales(layer).nbytes();
  EXPECT_EQ(static_cast<std::int64_t>(bytes), 10 * KvCache::bytes_per_token(config, DType::bf16, model.kv_cache()));
}

}  // namespace
}  // namespace quench::nn
