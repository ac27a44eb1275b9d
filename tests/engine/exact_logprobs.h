#pragma once
// Log-probabilities that the engine reports next to those of a training pass over the same tokens, in batch-invariant
// mode.

#include <bit>

#include "core/device/determinism.h"
#include "tests/engine/adapters_testing.h"

namespace quench::testing {

class BatchInvariantScope {
 public:
  BatchInvariantScope() { set_batch_invariant(true); }
  ~BatchInvariantScope() { set_batch_invariant(false); }
  BatchInvariantScope(const BatchInvariantScope&) = delete;
  BatchInvariantScope& operator=(const BatchInvariantScope&) = delete;
};

// Log-probabilities of the tokens of `answers`, in their order, by one recorded pass over all sequences.
inline std::vector<float> training_logprobs(const nn::CausalLm& model, std::span<const EngineRequest> requests,
                                            std::span<const EngineResult> answers) {
  std::vector<std::int32_t> ids, labels;
  std::vector<SequenceRange> sequences;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto begin = std::ssize(ids);
    std::vector<std::int32_t> all = requests[i].prompt;
    all.insert(all.end(), answers[i].tokens.begin(), answers[i].tokens.end());
    for (std::size_t t = 0; t + 1 < all.size(); ++t) {
      ids.push_back(all[t]);
      labels.push_back(t + 1 < requests[i].prompt.size() ? kIgnoreLabel : all[t + 1]);
    }
    const auto length = std::ssize(ids) - begin;
    sequences.push_back({begin, length, begin, length});
  }
  const Device device = model.options().device;
  const Tensor id_values = Tensor::from_values<std::int32_t>({std::ssize(ids)}, ids).to(device),
               label_values = Tensor::from_values<std::int32_t>({std::ssize(labels)}, labels).to(device);
  autograd::Tape tape;
  const autograd::TapeScope scope(tape);
  const autograd::Variable hidden = model.hidden(id_values, model.make_context(sequences, std::ssize(ids)));
  Tensor losses;
  (void)model.head_loss(hidden, label_values, 1.0f, {.f32_logits = true}, &losses);
  const Tensor host = losses.to(Device{});
  std::vector<float> logprobs;
  for (std::int64_t i = 0; i < host.numel(); ++i)
    if (labels[static_cast<std::size_t>(i)] != kIgnoreLabel) logprobs.push_back(-host.data<float>()[i]);
  return logprobs;
}

// `sequences` of the engine at a time; prompts and answers of many lengths.
inline void expect_exact_logprobs(const nn::CausalLm& model, std::int64_t sequences, std::int64_t count = 24) {
  const BatchInvariantScope scope;
  std::vector<EngineRequest> requests;
  for (std::int64_t i = 0; i < count; ++i)
    requests.push_back({.prompt = text(1 + i * 11 % 150, i),
                        .max_new_tokens = 2 + i * 7 % 80,
                        .sampling = {.temperature = 1, .seed = static_cast<std::uint64_t>(i)}});
  Engine engine(model, {.max_sequences = sequences, .cache_tokens = 230 * sequences, .prefill_tokens = 61});
  const std::vector<EngineResult> results = run_all(engine, requests);
  const std::vector<float> expected = training_logprobs(model, requests, results);
  std::size_t at = 0, different = 0;
  double largest = 0;
  for (const EngineResult& result : results)
    for (const float logprob : result.logprobs) {
      ASSERT_LT(at, expected.size());
      different += std::bit_cast<std::uint32_t>(logprob) != std::bit_cast<std::uint32_t>(expected[at]) ? 1 : 0;
      largest = std::max(largest, static_cast<double>(std::abs(logprob - expected[at])));
      ++at;
    }
  EXPECT_EQ(at, expected.size());
  EXPECT_EQ(different, 0u) << "of " << at << ", largest difference " << largest;
}

// With LoRA, whose ranks are odd.
inline void expect_exact_adapted_logprobs(Device device, DType dtype) {
  EngineModel model(device, "{}", dtype);
  const auto adapter = bank_adapter(model.lm, 1);
  adapter->attach();
  for (const std::int64_t sequences : {1, 9}) expect_exact_logprobs(model.lm, sequences, 9);
  adapter->detach();
}

// Members of config.json (tiny_config) of models with different parts.
inline constexpr const char* kExactModels[] = {
    "{}",
    R"({"head_dim": 64, "num_attention_heads": 8, "num_key_value_heads": 2})",
    R"({"model_type": "qwen3", "head_dim": 128, "tie_word_embeddings": true})",
    R"({"model_type": "mistral", "sliding_window": 20})",
    R"({"model_type": "gemma2", "head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16})",
    R"({"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "norm_topk_prob": true, "head_dim": 16})",
    R"({"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 64, "sliding_window": 32,
        "intermediate_size": 32})"};

}  // namespace quench::testing
