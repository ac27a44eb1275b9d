#pragma once
// Three adapters of the engine's tiny model: unequal ranks, scales and layers, fused layers in part.

#include "core/ops/elementwise.h"
#include "recipes/lora/adapter_bank.h"
#include "tests/core/ops/op_testing.h"
#include "tests/engine/engine_testing.h"

namespace quench::testing {

inline constexpr std::int64_t kBankAdapters = 3;

inline std::unique_ptr<recipes::Adapters> bank_adapter(nn::CausalLm& model, std::int64_t number) {
  recipes::LoraOptions options;
  const std::vector<std::vector<std::string>> targets{
      {"q_proj", "v_proj", "down_proj"},
      {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
      {"layers.1.self_attn.o_proj", "up_proj"}};
  options.targets = targets[static_cast<std::size_t>(number)];
  options.rank = 2 + number * 3;
  options.alpha = static_cast<double>(options.rank) * (number == 2 ? 0.7 : 1.5);
  if (number == 1) options.rank_pattern = {{"k_proj", 3}};
  auto adapters =
      std::make_unique<recipes::Adapters>(model, recipes::lora_layers(model, options), options, model.options());
  Generator random(static_cast<std::uint32_t>(50 + number));
  for (nn::Parameter* parameter : adapters->parameters()) {
    const Tensor values = Tensor::empty(parameter->global_shape, DType::f32);
    random.fill_normal(values);
    for (std::int64_t i = 0; i < values.numel(); ++i) values.data<float>()[i] *= 0.2f;
    Tensor own = parameter->variable.value();
    const Tensor rounded = Tensor::empty(values.shape(), own.dtype());
    cast({values, rounded});
    own.copy_from(rounded.to(model.options().device));
    parameter->mark_changed();
  }
  return adapters;
}

// Answers of each request by the model with the request's adapter alone.
inline std::vector<Answer> adapted_answers(nn::CausalLm& model, const std::vector<EngineRequest>& requests) {
  std::vector<Answer> answers(requests.size());
  for (std::int64_t number = -1; number < kBankAdapters; ++number) {
    const auto adapter = number < 0 ? nullptr : bank_adapter(model, number);
    if (adapter) adapter->attach();
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (requests[i].adapter == number) answers[i] = expected_answer(model, requests[i]);
    if (adapter) adapter->detach();
  }
  return answers;
}

inline void attach_bank(nn::CausalLm& model) {
  std::vector<std::unique_ptr<recipes::Adapters>> adapters;
  std::vector<recipes::NamedAdapters> named;
  for (std::int64_t number = 0; number < kBankAdapters; ++number) {
    adapters.push_back(bank_adapter(model, number));
    named.push_back({fmt::format("number {}", number), adapters.back().get()});
  }
  EXPECT_GT(recipes::attach_adapter_bank(named, model.options().dtype, model.options().device), 0);
}

// Requests of all adapters and none, in turns; every second one begins as the others do.
inline std::vector<EngineRequest> adapted_requests(std::int64_t count, std::int64_t new_tokens = 0) {
  std::vector<EngineRequest> all;
  for (std::int64_t i = 0; i < count; ++i) {
    EngineRequest& request =
        all.emplace_back(EngineRequest{.prompt = text(i % 2 == 0 ? 70 : 1 + i * 5 % 60, i % 2 == 0 ? 0 : i),
                                       .max_new_tokens = new_tokens > 0 ? new_tokens : 3 + i * 7 % 40,
                                       .adapter = i * 3 % 5 % (kBankAdapters + 1) - 1});
    if (i % 3 == 1) request.sampling = {.temperature = 0.8, .top_k = 20, .seed = static_cast<std::uint64_t>(i)};
  }
  return all;
}

}  // namespace quench::testing
