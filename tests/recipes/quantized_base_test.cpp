// A frozen model whose weights are kept in few bits.

#include "recipes/lora/quantized_base.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/memory/allocator.h"
#include "core/ops/quantize/nf4.h"
#include "core/ops/quantize/quantize.h"
#include "nn/decoder/causal_lm.h"
#include "nn/modules/initialize.h"
#include "recipes/convert.h"
#include "recipes/float8/weight.h"
#include "recipes/lora/adapters.h"

namespace quench::recipes {
namespace {

nn::ModelConfig stored_model() {
  return nn::parse_model_config(Json::parse(R"({"model_type": "llama", "vocab_size": 48, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})"),
                                "config.json");
}

struct BaseRecipe {
  std::string name = "bf16";
  RecipeOptions options = {};
  DType dtype = DType::bf16;
};

// Losses of the passes, and the adapters' gradients.
std::vector<float> results(BaseForm form, bool dense, autograd::Recompute level, const BaseRecipe& recipe = {},
                           int passes = 1) {
  nn::CausalLm model(stored_model(), {.dtype = recipe.dtype});
  const LoraOptions options{.rank = 4, .alpha = 8, .targets = {"q_proj", "down_proj"}};
  const Adapters adapters(model, lora_layers(model, options), options, {.dtype = recipe.dtype});
  freeze_base(model);
  model.initialize(3);
  if (recipe.name != "bf16") apply_recipe(model, find_recipe(recipe.name), {.exclude = {"lm_head"}}, recipe.options);
  adapters.attach();
  for (nn::Parameter* parameter : adapters.parameters()) nn::initialize_parameter(*parameter, 4);
  QuantizedBase().store(model, form);
  if (dense) make_dense(model);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 33; ++i) tokens.push_back(i * 7 % 48);
  const std::span<const std::int32_t> all = tokens;
  nn::ForwardContext context = model.make_context({{0, 32, 0, 32}}, 32);
  context.recompute = level;
  std::vector<float> values;
  for (int pass = 0; pass < passes; ++pass) {
    autograd::Tape tape(level);
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = model.loss(Tensor::from_values<std::int32_t>({32}, all.first(32)),
                        Tensor::from_values<std::int32_t>({32}, all.last(32)), context, 1.0f / 32);
    }
    tape.backward(loss);
    values.push_back(*loss.value().data<float>());
  }
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

constexpr const char* kFloat8OverBase[] = {"float8_tensorwise", "float8_rowwise", "float8_rowwise_with_gw_hp"};

// In f32 a dense copy has the values that the codes are cast from.
TEST(QuantizedBase, Float8CastsTheValuesThatItStandsFor) {
  for (const char* name : kFloat8OverBase)
    for (const BaseForm form : {BaseForm::nf4, BaseForm::float8})
      for (const auto level : {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name, static_cast<int>(form), static_cast<int>(level)));
        const BaseRecipe recipe{.name = name, .options = {.emulate = true}, .dtype = DType::f32};
        const std::vector<float> ours = results(form, false, level, recipe);
        EXPECT_EQ(ours, results(form, true, level, recipe));
        EXPECT_NE(ours, results(form, false, level, {.dtype = DType::f32}));
        EXPECT_NEAR(ours[0], results(form, false, level, {.dtype = DType::f32})[0], 0.01f);
      }
}

TEST(QuantizedBase, KeptFloat8CodesMatchCodesOfEachUse) {
  for (const char* name : kFloat8OverBase) {
    const auto run = [&](bool keep, bool health) {
      RecipeOptions options{.emulate = true, .keep_weights = keep};
      if (health) options.health = std::make_shared<HealthRecorder>();
      return results(BaseForm::nf4, false, autograd::Recompute::none, {.name = name, .options = options}, 3);
    };
    EXPECT_EQ(run(true, false), run(false, false)) << name;
    EXPECT_EQ(run(false, true), run(false, false)) << name;
  }
}

// As they were made: no second copy at any time. A storage that keeps its codes is copied from.
TEST(QuantizedBase, KeptFloat8CodesAreNotCopied) {
  nn::CausalLm model(stored_model(), {.dtype = DType::bf16, .trainable = false});
  model.initialize(3);
  QuantizedBase().store(model, BaseForm::nf4);
  const Float8Product product;
  const Float8Gemms products({.name = "test", .forward = product, .dgrad = product, .wgrad = product}, true, Device{});
  Allocator& memory = Allocator::of(Device{});
  for (const nn::Parameter* weight : quantizable_weights(model)) {
    Float8Weight kept(products.weight_uses(), true);
    (void)weight->weight().acquire_quantized({});  // makes the scale
    memory.reset_peak();
    const std::int64_t before = memory.stats().current;
    const auto by_category = [&] {
      return memory.stats().current_by_category[static_cast<std::size_t>(MemoryCategory::parameters)];
    };
    const std::int64_t parameters = by_category();
    const void* codes = kept.rowwise(*weight, products, true, {}).codes.payload().raw_data();
    // Rows that are no whole blocks are cast from values in between.
    if (weight->global_shape[1] % Nf4::kBlockSize == 0) {
      EXPECT_LT(memory.stats().peak, before + 3 * weight->numel() / 2) << weight->name;
    }
    EXPECT_GE(by_category(), parameters + weight->numel()) << weight->name;
    EXPECT_EQ(kept.rowwise(*weight, products, true, {}).codes.payload().raw_data(), codes);
  }
}

TEST(QuantizedBase, CodesInTheBuffersOfAStorageAreCopied) {
  class Buffers final : public autograd::WeightStorage {
   public:
    [[nodiscard]] Tensor acquire() override { return values; }
    [[nodiscard]] QuantTensor acquire_quantized(const autograd::WeightFormat&, Orientation) override { return codes; }
    void release() noexcept override {}
    Tensor values = Tensor::zeros({16, 16}, DType::f32);
    QuantTensor codes = quantize_float8(values, {.granularity = Granularity::tensor});
  };
  const auto storage = std::make_shared<Buffers>();
  nn::Parameter weight;
  weight.whole = autograd::Weight({16, 16}, DType::f32, Device{}, storage, nullptr);
  const Float8Product product;
  const Float8Gemms products({.name = "test", .forward = product, .dgrad = product, .wgrad = product}, true, Device{});
  Float8Weight kept(products.weight_uses(), true);
  EXPECT_NE(kept.rowwise(weight, products, true, {}).codes.payload().raw_data(), storage->codes.payload().raw_data());
}

// Codes take a byte an element while a GEMM uses them, and nothing but the scale after it.
TEST(QuantizedBase, Float8CodesLiveForOneUse) {
  nn::CausalLm model(stored_model(), {.dtype = DType::bf16, .trainable = false});
  model.initialize(3);
  QuantizedBase().store(model, BaseForm::nf4);
  const auto used = [] { return Allocator::of(Device{}).stats().current; };
  for (const nn::Parameter* weight : quantizable_weights(model)) {
    const autograd::WeightFormat format;
    (void)weight->weight().acquire_quantized(format);
    const std::int64_t before = used();
    for (const Orientation orientation : {Orientation::natural, Orientation::transposed}) {
      const auto codes = weight->weight().acquire_quantized(format, orientation);
      EXPECT_EQ(codes.codes().format().orientation, orientation);
      EXPECT_GE(used(), before + weight->numel());
      EXPECT_LT(used(), before + weight->numel() + 1024);
    }
    EXPECT_EQ(used(), before);
    // Values and codes at once.
    const auto values = weight->weight().acquire();
    { const auto codes = weight->weight().acquire_quantized(format); }
    EXPECT_EQ(values.value().shape(), weight->global_shape);
    EXPECT_EQ(weight->weight().acquire().value().raw_data(), values.value().raw_data());
  }
  EXPECT_FALSE(quantizable_weights(model)[0]
                   ->weight()
                   .acquire_quantized({.element = ElementFormat::int8, .granularity = Granularity::row})
                   .codes()
                   .defined());
}

// Codes of a quantized folder: two in a byte, with a scale and an offset for 32 of them.
TEST(QuantizedBase, Float8CastsTheDequantizedCodesOfAFolder) {
  nn::CausalLm model(stored_model(), {.dtype = DType::bf16, .trainable = false});
  nn::Parameter& weight = *quantizable_weights(model)[0];
  const Shape shape = weight.global_shape;
  const Tensor codes = Tensor::empty(shape, DType::i4), scales = Tensor::empty({shape[0], shape[1] / 32}, DType::f32),
               offsets = Tensor::zeros(scales.shape(), DType::f32);
  for (std::size_t i = 0; i < codes.nbytes(); ++i)
    static_cast<std::uint8_t*>(codes.raw_data())[i] = static_cast<std::uint8_t>(i * 7);
  for (std::int64_t i = 0; i < scales.numel(); ++i) scales.data<float>()[i] = 0.001f * static_cast<float>(i + 1);
  QuantizedBase base;
  base.keep(weight, PackedMatrix(32, codes, scales, offsets), DType::bf16);
  const auto elements = weight.numel();
  EXPECT_EQ(base.bytes_of_use(weight, false), elements / 2 + elements / 32 * 8 + 2 * elements);
  EXPECT_EQ(base.bytes_of_use(weight, true), elements / 2 + elements / 32 * 8 + 5 * elements);
  EXPECT_EQ(base.bytes_of_use(*quantizable_weights(model)[1], true), 0);
  for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column}) {
    const auto ours = weight.weight().acquire_quantized({.granularity = granularity});
    const QuantTensor expected = quantize_float8(weight.weight().acquire().value(), {.granularity = granularity});
    ASSERT_EQ(ours.codes().payload().nbytes(), expected.payload().nbytes());
    EXPECT_EQ(
        std::memcmp(ours.codes().payload().raw_data(), expected.payload().raw_data(), expected.payload().nbytes()), 0);
    EXPECT_EQ(std::memcmp(ours.codes().scales().raw_data(), expected.scales().raw_data(), expected.scales().nbytes()),
              0);
  }
}

TEST(QuantizedBase, KeepsTheBitsItPromises) {
  for (const auto& [form, bits] : {std::pair{BaseForm::nf4, 4.2}, {BaseForm::float8, 8.6}}) {
    const auto used = [] { return static_cast<double>(Allocator::of(Device{}).stats().current); };
    const double before = used();
    nn::CausalLm model(stored_model(), {.dtype = DType::bf16, .trainable = false});
    model.initialize(3);
    const double dense = used() - before;
    QuantizedBase().store(model, form);
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
  QuantizedBase().store(model, BaseForm::float8);
  make_dense(model);
  const Tensor expected =
      dequantize(quantize_float8(before, {.granularity = Granularity::row, .power_of_two_scale = true}), DType::f32);
  for (std::int64_t i = 0; i < before.numel(); ++i)
    EXPECT_EQ(weight->variable.value().data<float>()[i], expected.data<float>()[i]);
}

}  // namespace
}  // namespace quench::recipes
