#pragma once
// A tiny model for the tests of the engine, and what it generates without any cache.

#include <gtest/gtest.h>

#include <cmath>

#include "core/tensor/host_copy.h"
#include "engine/engine.h"
#include "nn/attention/paged_keys.h"

namespace quench::testing {

// `more`: members of config.json besides these, or in their place.
inline nn::ModelConfig tiny_config(const char* more = "{}") {
  Json config = Json::parse(R"({"model_type": "llama", "vocab_size": 60, "hidden_size": 32, "intermediate_size": 48,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.3,
      "max_position_embeddings": 400})");
  const Json members = Json::parse(more);
  for (const auto& [key, value] : members.as_object()) config.set(key, value);
  return nn::parse_model_config(config, "config.json");
}

struct EngineModel {
  explicit EngineModel(Device device = {}, const char* more = "{}", DType dtype = DType::f32)
      : lm(tiny_config(more), nn::ParameterOptions{.dtype = dtype, .device = device}) {
    lm.initialize(7);
  }
  nn::CausalLm lm;
};

inline std::vector<std::int32_t> text(std::int64_t length, std::int64_t kind = 0) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<std::int32_t>((i * i + 3 * i * (kind + 1) + kind) % 60));
  return ids;
}

struct Answer {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
};

// Every token by a pass over the whole text.
inline Answer expected_answer(const nn::CausalLm& model, const EngineRequest& request) {
  const autograd::NoGrad no_grad;
  std::vector<std::int32_t> all = request.prompt;
  Answer answer;
  while (std::ssize(answer.tokens) < request.max_new_tokens) {
    const auto count = std::ssize(all);
    const Tensor ids = Tensor::from_values<std::int32_t>({count}, all).to(model.options().device);
    const autograd::Variable hidden = model.hidden(ids, model.make_context({{0, count, 0, count}}, count));
    const HostCopy logits(model.logits(autograd::Variable(hidden.value().narrow(0, count - 1, 1).clone())));
    const std::span<const float> row(logits.get().data<float>(), static_cast<std::size_t>(logits.get().numel()));
    const std::int32_t token = sample_token(row, all, request.sampling, count);
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit));
    answer.logprobs.push_back(
        static_cast<float>(static_cast<double>(row[static_cast<std::size_t>(token)]) - std::log(sum)));
    answer.tokens.push_back(token);
    all.push_back(token);
    if (std::ranges::find(request.stop_tokens, token) != request.stop_tokens.end()) break;
  }
  return answer;
}

// Result of each request, in their order.
inline std::vector<EngineResult> run_all(Engine& engine, std::vector<EngineRequest> requests) {
  std::vector<EngineResult> results(requests.size());
  std::size_t ended = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].on_end = [&, i](EngineResult result) {
      results[i] = std::move(result);
      ++ended;
    };
    (void)engine.submit(std::move(requests[i]));
  }
  while (engine.step()) {
  }
  EXPECT_EQ(ended, results.size());
  return results;
}

inline void expect_answer(const EngineResult& result, const Answer& expected, double tolerance = 2e-4) {
  EXPECT_EQ(result.tokens, expected.tokens);
  ASSERT_EQ(result.logprobs.size(), result.tokens.size());
  for (std::size_t i = 0; i < std::min(result.tokens.size(), expected.tokens.size()); ++i)
    EXPECT_NEAR(result.logprobs[i], expected.logprobs[i], tolerance) << i;
}

}  // namespace quench::testing
