#pragma once
// Training steps of a sharded model without a run around them.

#include <vector>

#include "distributed/fsdp/sharded_model.h"
#include "distributed/ranks.h"
#include "nn/optim/table.h"
#include "recipes/convert.h"

namespace quench::testing {

// Losses of some steps of a small model under a recipe, whose weights travel as codes or as values.
inline std::vector<float> losses(const distributed::Ranks& ranks, const recipes::Recipe& recipe,
                                 autograd::Recompute recompute, bool reshard, bool gather_codes) {
  const nn::ModelConfig config = nn::parse_model_config(
      Json::parse(R"({"model_type": "llama", "vocab_size": 61, "num_hidden_layers": 3, "hidden_size": 24,
                      "intermediate_size": 37, "num_attention_heads": 3, "head_dim": 6})"),
      "the test");
  nn::CausalLm model(config, {.sharding = {ranks.shard->rank(), ranks.shard->size()}});
  distributed::ShardedModel sharded(model, ranks.shard, ranks.replicate,
                                    {.reshard_after_forward = reshard, .gather_codes = gather_codes});
  model.initialize(7);
  recipes::apply_recipe(model, recipe, {.exclude = {"lm_head"}}, {.emulate = true, .pad = true});
  const auto optimizer = nn::find_optimizer("adamw").make(model.parameters(), {});
  const Tensor one = Tensor::from_values<float>({1}, std::vector<float>{1.0F});
  constexpr std::int64_t kTokens = 12;
  std::vector<std::int32_t> ids(kTokens), labels(kTokens);
  std::vector<float> all;
  for (int step = 1; step <= 4; ++step) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>((i * 7 + static_cast<std::size_t>(ranks.rank) * 5) % 61);
      labels[i] = static_cast<std::int32_t>((i * 11 + 3) % 61);
    }
    nn::ForwardContext context =
        model.make_context({{.q_begin = 0, .q_length = kTokens, .k_begin = 0, .k_length = kTokens}}, kTokens);
    context.recompute = recompute;
    sharded.begin_forward();
    autograd::Tape tape(recompute);
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = model.loss(Tensor::from_values<std::int32_t>({kTokens}, ids),
                        Tensor::from_values<std::int32_t>({kTokens}, labels), context, 1.0F / kTokens);
    }
    all.push_back(*loss.value().data<float>());
    sharded.begin_backward(true);
    tape.backward(loss);
    sharded.end_backward();
    const std::size_t leading = sharded.leading_parameters(), count = optimizer->parameters().size();
    optimizer->step(0.01, step, one, {0, leading});
    sharded.parameters_changed();
    sharded.gather_leading();
    optimizer->step(0.01, step, one, {leading, count});
    sharded.parameters_changed();
    optimizer->zero_grad();
  }
  return all;
}

}  // namespace quench::testing
