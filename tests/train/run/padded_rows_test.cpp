// Rows of padding in a step.

#include <gtest/gtest.h>

#include <cmath>

#include "nn/optim/adamw.h"
#include "tests/core/ops/op_testing.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

constexpr std::int64_t kRow = 12, kFilled = 7;

// Two sequences of 7 tokens in rows of 12, padded with `pad`.
Batch padded_batch(std::int32_t pad) {
  Batch batch;
  for (Tensor* tensor : {&batch.input_ids, &batch.labels, &batch.positions})
    *tensor = Tensor::empty({2, kRow}, DType::i32);
  for (std::int64_t i = 0; i < 2 * kRow; ++i) {
    const bool filled = i % kRow < kFilled;
    batch.input_ids.data<std::int32_t>()[i] = filled ? static_cast<std::int32_t>(i * 7 % 48) : pad;
    batch.labels.data<std::int32_t>()[i] = filled ? static_cast<std::int32_t>(i * 11 % 48) : kIgnoreLabel;
    batch.positions.data<std::int32_t>()[i] = filled ? static_cast<std::int32_t>(i % kRow) : 0;
  }
  for (std::int64_t row = 0; row < 2; ++row) batch.sequences.push_back({row * kRow, kFilled, row * kRow, kFilled});
  batch.valid_tokens = 2 * kFilled;
  return batch;
}

// The terms of routers, and the loads that move expert biases, are those of the tokens of sequences.
TEST(PaddedRows, RoutersDoNotCountThem) {
  const nn::ModelConfig config = nn::parse_model_config(
      Json::parse(R"({"model_type": "mixtral", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 16,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4,
        "num_experts_per_tok": 2})"),
      "config.json");
  nn::CausalLm model(config, {.dtype = DType::f32});
  model.initialize(3);
  nn::AdamW optimizer(model.parameters(), {});
  TrainStep step(model, optimizer, {.max_norm = 0, .router_terms = {.balance = 0.5f, .z = 0.5f}});
  nn::ExpertLoad load(2, 4, Device{});
  step.watch_experts(&load);
  const auto run = [&](std::int32_t pad) {
    load.reset();
    const Batch batch = padded_batch(pad);
    const double norm = step.accumulate({&batch, 1}, 1).grad_norm;
    step.skip();
    std::vector<double> seen{norm};
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      double pairs = 0;
      for (const double count : testing::values(load.counts(layer))) pairs += count;
      EXPECT_EQ(pairs, 2.0 * 2 * kFilled);
    }
    for (const nn::ExpertLoad::Layer& layer : load.read()) {
      seen.insert(seen.end(), layer.share.begin(), layer.share.end());
      seen.push_back(layer.balance);
      seen.push_back(layer.z);
    }
    return seen;
  };
  const std::vector<double> zeros = run(0);
  EXPECT_GT(zeros.front(), 0.0);
  EXPECT_EQ(zeros, run(31));
}

}  // namespace
}  // namespace quench
