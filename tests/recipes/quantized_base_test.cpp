// A frozen model whose weights are kept in few bits.

#include "recipes/lora/quantized_base.h"

#include <gtest/gtest.h>

#include "core/memory/allocator.h"
#include "core/ops/quantize/nf4.h"
#include "core/ops/quantize/quantize.h"
#include "nn/causal_lm.h"
#include "nn/initialize.h"
#include "recipes/lora/adapters.h"

namespace quench::recipes {
namespace {

nn::ModelConfig stored_model() {
  return nn::parse_model_config(Json::parse(R"({"model_type": "llama", "vocab_size": 48, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})"),
                                "config.json");
}

// Loss and the adapters' gradients of one pass.
std::vector<float> results(BaseForm form, bool dense, autograd::Recompute level) {
  nn::CausalLm model(stored_model(), {.dtype = DType::bf16});
  const LoraOptions options{.rank = 4, .alpha = 8, .targets = {"q_proj", "down_proj"}};
  const Adapters adapters(model, lora_layers(model, options), options, {.dtype = DType::bf16});
  freeze_base(model);
  model.initialize(3);
  adapters.attach();
  for (nn::Parameter* parameter : adapters.parameters()) nn::initialize_parameter(*parameter, 4);
  store_base(model, form);
  if (dense) make_dense(model);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 33; ++i) tokens.push_back(i * 7 % 48);
  const std::span<const std::int32_t> all = tokens;
  nn::ForwardContext context = model.make_context({{0, 32, 0, 32}}, 32);
  context.recompute = level;
  autograd::Tape tape(level);
  autograd::Variable loss;
  {
    const autograd::TapeScope scope(tape);
    loss = model.loss(Tensor::from_values<std::int32_t>({32}, all.first(32)),
                      Tensor::from_values<std::int32_t>({32}, all.last(32)), context, 1.0f / 32);
  }
  tape.backward(loss);
  std::vector<float> values{*loss.value().data<float>()};
  for (const nn::Parameter* parameter : adapters.parameters())
    for (std::int64_t i = 0; i < parameter->numel(); ++i) values.push_back(parameter->variable.grad().data<float>()[i]);
  return values;
}

TEST(QuantizedBase, ComputesWithTheRoundedWeights) {
  for (const BaseForm form : {BaseForm::nf4, BaseForm::float8})
    for (const auto level : {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
      EXPECT_EQ(results(form, false, level), results(form, true, level));
      EXPECT_NE(results(form, false, level), results(BaseForm::dense, false, level));
    }
}

TEST(QuantizedBase, KeepsTheBitsItPromises) {
  for (const auto& [form, bits] : {std::pair{BaseForm::nf4, 4.2}, {BaseForm::float8, 8.6}}) {
    const auto used = [] { return static_cast<double>(Allocator::of(Device{}).stats().current); };
    const double before = used();
    nn::CausalLm model(stored_model(), {.dtype = DType::bf16, .trainable = false});
    model.initialize(3);
    const double dense = used() - before;
    store_base(model, form);
    double elements = 0;
    for (const nn::Parameter* parameter : model.parameters())
      if (parameter->whole.defined()) elements += static_cast<double>(parameter->numel());
    EXPECT_EQ(elements, 2 * (128 + 64 + 3 * 96) * 64);
    EXPECT_LT(used() - before, dense - elements * 2 + elements * bits / 8 + 16 * 1024) << "and what blocks round up to";
  }
}

TEST(QuantizedBase, RoundsAsItsCastsDo) {
  nn::CausalLm model(stored_model(), {.trainable = false});
  model.initialize(3);
  nn::Parameter* weight = nullptr;
  for (nn::Parameter* parameter : model.parameters())
    if (parameter->name.ends_with("1.mlp.down_proj.weight")) weight = parameter;
  const Tensor before = weight->variable.value().clone();
  store_base(model, BaseForm::float8);
  make_dense(model);
  const Tensor expected =
      dequantize(quantize_float8(before, {.granularity = Granularity::row, .power_of_two_scale = true}), DType::f32);
  for (std::int64_t i = 0; i < before.numel(); ++i)
    EXPECT_EQ(weight->variable.value().data<float>()[i], expected.data<float>()[i]);
}

}  // namespace
}  // namespace quench::recipes
