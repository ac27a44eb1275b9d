#include "nn/attention/shared_prefix.h"

#include <gtest/gtest.h>

#include "nn/decoder/causal_lm.h"
#include "tests/nn/modules/layer_reference.h"

namespace quench::nn {
namespace {

using reference::small_config;

// Two answers of 5 and 4 tokens to a prompt of 7, then an unrelated sequence of 3, and 2 rows of padding.
constexpr std::int64_t kPrompt = 7, kFirst = 5, kSecond = 4, kOther = 3, kPadding = 2;

struct Inputs {
  std::vector<std::int32_t> ids, labels, positions;
  std::vector<SequenceRange> sequences;
  std::vector<SharedPrefix> prefixes;

  // Tokens [from, length) of a sequence, which are `seed` + index from the prompt's end on; its answer is labelled.
  void add(std::int64_t length, std::int32_t seed, std::int64_t from = 0) {
    const std::int64_t begin = std::ssize(ids);
    const auto token = [&](std::int64_t i) {
      return static_cast<std::int32_t>((i < kPrompt ? 3 * i + 1 : seed + 5 * i) % 40);
    };
    if (from > 0) prefixes.push_back({sequences.size(), sequences.back().q_begin, from});
    sequences.push_back({begin, length - from, begin, length - from});
    for (std::int64_t i = from; i < length; ++i) {
      ids.push_back(token(i));
      labels.push_back(i + 1 >= kPrompt ? token(i + 1) : -100);
      positions.push_back(static_cast<std::int32_t>(i));
    }
  }
  [[nodiscard]] static Tensor tensor(const std::vector<std::int32_t>& values) {
    return Tensor::from_values<std::int32_t>({std::ssize(values)}, values);
  }
};

Inputs inputs_of(bool shared) {
  Inputs inputs;
  inputs.add(kPrompt + kFirst, 2);
  inputs.add(kPrompt + kSecond, 11, shared ? kPrompt - 1 : 0);
  inputs.add(kOther, 23);
  for (std::int64_t i = 0; i < kPadding; ++i) {
    inputs.ids.push_back(0);
    inputs.labels.push_back(-100);
    inputs.positions.push_back(0);
  }
  return inputs;
}

// Loss and gradients of a model.
std::vector<Tensor> results(const char* more, const Inputs& inputs, autograd::Recompute recompute) {
  CausalLm model(small_config(more), {});
  model.initialize(3);
  ForwardContext context = model.make_context(inputs.sequences, inputs.prefixes, Inputs::tensor(inputs.positions));
  context.recompute = recompute;
  autograd::Tape tape(recompute);
  Variable loss;
  {
    const autograd::TapeScope scope(tape);
    loss = model.loss(Inputs::tensor(inputs.ids), Inputs::tensor(inputs.labels), context, 0.1f);
  }
  tape.backward(loss);
  std::vector<Tensor> all{loss.value()};
  for (Parameter* parameter : model.parameters()) all.push_back(parameter->variable.grad());
  return all;
}

TEST(SharedPrefix, LossAndGradientsEqualWholeSequences) {
  for (const char* more :
       {"{}", R"({"model_type": "qwen3"})", R"({"model_type": "mistral", "sliding_window": 5})",
        R"({"model_type": "llama4_text", "num_local_experts": 2, "interleave_moe_layer_step": 1,
            "intermediate_size_mlp": 20, "attention_chunk_size": 4, "no_rope_layers": [1, 0]})",
        R"({"model_type": "deepseek_v3", "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 12,
            "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 2,
            "n_group": 1, "topk_group": 1})"}) {
    for (const auto recompute : {autograd::Recompute::none, autograd::Recompute::full}) {
      SCOPED_TRACE(more);
      const std::vector<Tensor> whole = results(more, inputs_of(false), recompute);
      const std::vector<Tensor> shared = results(more, inputs_of(true), recompute);
      ASSERT_EQ(whole.size(), shared.size());
      for (std::size_t i = 0; i < whole.size(); ++i)
        for (std::int64_t j = 0; j < whole[i].numel(); ++j)
          ASSERT_NEAR(shared[i].data<float>()[j], whole[i].data<float>()[j],
                      1e-5 * std::max(1.0f, std::abs(whole[i].data<float>()[j])))
              << i << " " << j;
    }
  }
}

TEST(SharedPrefix, RowsOfKeysAndTheirReaders) {
  std::vector<SequenceRange> sequences{{0, 3, 0, 3}, {3, 2, 3, 2}};
  const std::vector<SharedPrefix> prefixes{{1, 0, 2}};
  const autograd::KeyRows keys = expand_prefixes(sequences, prefixes, 6, Device{});
  const auto values = [](const Tensor& x) {
    return std::vector<std::int32_t>(x.data<std::int32_t>(), x.data<std::int32_t>() + x.numel());
  };
  EXPECT_EQ(values(keys.rows), (std::vector<std::int32_t>{0, 1, 2, 0, 1, 3, 4}));
  EXPECT_EQ(values(keys.readers), (std::vector<std::int32_t>{0, 3, 1, 4, 2, -1, 5, -1, 6, -1, -1, -1}));
  EXPECT_EQ(sequences[1].k_begin, 3);
  EXPECT_EQ(sequences[1].k_length, 4);
}

TEST(SharedPrefix, ForeignRowsAreRefused) {
  std::vector<SequenceRange> sequences{{0, 3, 0, 3}};
  const std::vector<SharedPrefix> beyond{{0, 2, 3}}, unknown{{1, 0, 1}};
  EXPECT_THROW((void)expand_prefixes(sequences, beyond, 4, Device{}), Error);
  EXPECT_THROW((void)expand_prefixes(sequences, unknown, 4, Device{}), Error);
}

}  // namespace
}  // namespace quench::nn
