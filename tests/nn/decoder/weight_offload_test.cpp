#include "nn/decoder/weight_offload.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/memory/allocator.h"
#include "tests/testing.h"

namespace quench::nn {
namespace {

constexpr Device kPlanned{DeviceType::meta, 0};

ModelConfig four_layers(bool tied) {
  return parse_model_config(Json::parse(fmt::format(R"({{"model_type": "qwen3_moe", "vocab_size": 64, "hidden_size": 32,
                                   "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
                                   "num_key_value_heads": 2, "head_dim": 16,
                                   "max_position_embeddings": 64, "num_experts": 4,
                                   "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 2,
                                   "tie_word_embeddings": {}}})",
                                                    tied)),
                            "test");
}

std::unique_ptr<CausalLm> make_model(Device device, bool tied) {
  return std::make_unique<CausalLm>(four_layers(tied), ParameterOptions{.device = device, .trainable = false});
}

void offload_all(WeightOffloader& offloader, CausalLm& model) {
  for (const CausalLm::Unit& unit : model.units())
    for (Parameter* parameter : unit.parameters) offloader.offload(*parameter, unit.layer);
}

Tensor logits_of(const CausalLm& model, std::int64_t tokens) {
  const autograd::NoGrad no_grad;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 3);
  const SequenceRange all{0, tokens, 0, tokens};
  return model.logits(
      model.hidden(Tensor::from_values<std::int32_t>({tokens}, ids), model.make_context({all}, tokens)));
}

TEST(WeightOffloader, PassesGiveTheBitsOfResidentWeights) {
  for (const bool tied : {true, false}) {
    const auto resident = make_model(Device{}, tied), offloaded = make_model(Device{}, tied);
    resident->initialize(5);
    offloaded->initialize(5);
    WeightOffloader offloader(*offloaded);
    offload_all(offloader, *offloaded);
    EXPECT_EQ(offloader.host_bytes(), 4 * four_layers(tied).parameter_count());
    // Embedding, head and final norm; embedding and a head tied to it are copied one after the other.
    const ModelConfig& config = offloaded->config();
    EXPECT_EQ(offloader.exposed_bytes(), 4 * config.hidden_size * (2 * config.vocab_size + 1));
    EXPECT_EQ(offloader.layer_bytes(),
              offloader.host_bytes() - 4 * config.hidden_size * ((tied ? 1 : 2) * config.vocab_size + 1));
    for (const Parameter* parameter : offloaded->parameters()) EXPECT_EQ(parameter->variable.value().numel(), 0);
    for (const std::int64_t tokens : {7, 30}) {
      const Tensor expected = logits_of(*resident, tokens), actual = logits_of(*offloaded, tokens);
      EXPECT_EQ(std::memcmp(actual.raw_data(), expected.raw_data(), expected.nbytes()), 0) << tokens;
    }
  }
}

TEST(WeightOffloader, ThreeLayersAreNeverOnTheDevice) {
  const Allocator& plan = Allocator::of(kPlanned);
  const std::int64_t before = plan.stats().current;
  const auto model = make_model(kPlanned, false);
  std::vector<std::int64_t> layers(4);  // bytes
  std::int64_t embedding = 0;
  for (const CausalLm::Unit& unit : model->units())
    for (const Parameter* parameter : unit.parameters) {
      const auto bytes = static_cast<std::int64_t>(parameter->variable.value().nbytes());
      if (unit.layer >= 0) layers[static_cast<std::size_t>(unit.layer)] += bytes;
      if (unit.name == "model.embed_tokens") embedding = bytes;
    }
  WeightOffloader offloader(*model);
  offload_all(offloader, *model);
  const std::int64_t empty = plan.stats().current;
  EXPECT_EQ(empty, before);
  ForwardContext context = model->make_context({{0, 8, 0, 8}}, 8);
  const UnitHooks& hooks = *context.hooks.front();
  const std::int64_t prepared = plan.stats().current;
  std::int64_t most = 0;
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    const auto index = static_cast<std::size_t>(layer);
    hooks.before_forward(layer);
    const std::int64_t expected = layers[index] + (layer < 3 ? layers[index + 1] : 0);
    EXPECT_EQ(plan.stats().current - prepared, expected) << layer;
    most = std::max(most, expected);
    hooks.after_forward(layer);
  }
  EXPECT_EQ(plan.stats().current, prepared);
  EXPECT_EQ(offloader.device_bytes(), std::max(most, embedding));
  {
    const auto head = model->head_weight().acquire();
    EXPECT_EQ(plan.stats().current - prepared, embedding);
  }
  EXPECT_EQ(plan.stats().current, prepared);
}

// An error in a pass leaves layers on the device; the next pass uses them.
TEST(WeightOffloader, ABrokenPassLeavesTheModelUsable) {
  const auto resident = make_model(Device{}, false), offloaded = make_model(Device{}, false);
  resident->initialize(5);
  offloaded->initialize(5);
  WeightOffloader offloader(*offloaded);
  offload_all(offloader, *offloaded);
  UnitHooks broken;
  broken.before_forward = [](std::int64_t layer) {
    if (layer == 2) throw Error(ErrorCode::failed, "in the middle");
  };
  offloaded->add_unit_hooks(&broken);
  EXPECT_THROW((void)logits_of(*offloaded, 9), Error);
  offloaded->remove_unit_hooks(&broken);
  const Tensor expected = logits_of(*resident, 9), actual = logits_of(*offloaded, 9);
  EXPECT_EQ(std::memcmp(actual.raw_data(), expected.raw_data(), expected.nbytes()), 0);
}

TEST(WeightOffloader, TrainedWeightsAreRefused) {
  CausalLm model(four_layers(true), ParameterOptions{});
  WeightOffloader offloader(model);
  EXPECT_THROW(offloader.offload(*model.parameters().front(), -1), Error);
}

}  // namespace
}  // namespace quench::nn
