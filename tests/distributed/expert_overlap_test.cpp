// Exchanges of groups of experts: when they start and are waited for, and the bits of a model without them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distributed/experts/expert_parallel_dispatcher.h"
#include "nn/causal_lm.h"
#include "nn/experts/moe.h"
#include "recipes/convert.h"
#include "recipes/lora/adapters.h"
#include "tests/core/ops/op_testing.h"

namespace quench::distributed {
namespace {

using autograd::Recompute;
using autograd::Variable;
using ::testing::ElementsAre;
using testing::Generator;

// One rank, whose exchanges take place when they are waited for.
class LateGroup final : public ProcessGroup {
 public:
  LateGroup() : ProcessGroup("late", 0, 1, Device{}) {}
  void abort(AbortCause, const std::string&) override {}
  std::vector<std::string> events;  // "start dispatch", "wait dispatch", ...

 private:
  class Late final : public PendingCollective {
   public:
    Late(LateGroup& group, Collective collective) : group_(group), collective_(std::move(collective)) {}
    void wait() override {
      group_.events.push_back("wait " + collective_.label);
      const AllToAllParts& parts = collective_.parts;
      Tensor target = flat(collective_.output).narrow(0, parts.receive_offsets[0], parts.receive_counts[0]);
      target.copy_from(flat(collective_.input).narrow(0, parts.send_offsets[0], parts.send_counts[0]));
    }

   private:
    static Tensor flat(const Tensor& tensor) { return tensor.view({tensor.numel()}); }
    LateGroup& group_;
    Collective collective_;
  };

  std::shared_ptr<PendingCollective> start(const Collective& collective) override {
    events.push_back("start " + collective.label);
    return std::make_shared<Late>(*this, collective);
  }
};

struct Case {
  std::string recipe = "bf16";
  recipes::RecipeOptions options{};
  DType dtype = DType::f32;
  Recompute recompute = Recompute::none;
  std::int64_t micro_batches = 1;
  bool adapters = false;
  std::string more{};  // of the model
};

// Loss and gradients; without `group` no rank is asked.
std::vector<Tensor> train(const Case& what, LateGroup* group, std::int64_t groups) {
  constexpr std::int64_t kTokens = 40;
  const nn::ModelConfig config = nn::parse_model_config(
      Json::parse(R"({"model_type": "qwen3_moe", "vocab_size": 61, "num_hidden_layers": 2, "hidden_size": 32,
                      "intermediate_size": 48, "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2,
                      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16)" +
                  what.more + "}"),
      "the test");
  nn::CausalLm model(config, {.dtype = what.dtype});
  recipes::apply_recipe(model, recipes::find_recipe(what.recipe), {{"*experts*"}, {}}, what.options);
  std::optional<recipes::Adapters> adapters;
  if (what.adapters) {
    const recipes::LoraOptions options{.rank = 2, .targets = {"gate_proj", "down_proj"}};
    adapters.emplace(model, recipes::lora_layers(model, options), options, nn::ParameterOptions{});
    adapters->attach();
  }
  model.initialize(7);
  Generator random(5);
  if (adapters)
    for (const nn::Parameter* parameter : adapters->parameters()) {
      Tensor value = parameter->variable.value();
      value.copy_from(random.normal(value.shape(), value.dtype(), 0.1));
    }
  std::optional<ExpertParallelDispatcher> dispatcher;
  if (group != nullptr) {
    dispatcher.emplace(std::shared_ptr<ProcessGroup>(std::shared_ptr<void>(), group), groups, false,
                       std::make_shared<ExposedCommTimer>(Device{}));
    model.visit([&](const std::string&, nn::Module& module) {
      if (auto* moe = dynamic_cast<nn::MoE*>(&module)) moe->set_token_dispatcher(&*dispatcher);
    });
  }
  std::vector<Tensor> result;
  for (std::int64_t micro = 0; micro < what.micro_batches; ++micro) {
    std::vector<std::int32_t> ids(kTokens), labels(kTokens);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>((i * 7 + static_cast<std::size_t>(micro) * 5) % 61);
      labels[i] = static_cast<std::int32_t>((i * 11 + 3) % 61);
    }
    nn::ForwardContext context =
        model.make_context({{.q_begin = 0, .q_length = kTokens, .k_begin = 0, .k_length = kTokens}}, kTokens);
    context.recompute = what.recompute;
    autograd::Tape tape(what.recompute);
    Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = model.loss(Tensor::from_values<std::int32_t>({kTokens}, ids),
                        Tensor::from_values<std::int32_t>({kTokens}, labels), context, 1.0F / kTokens);
    }
    result.push_back(loss.value());
    tape.backward(loss);
  }
  for (const nn::Parameter* parameter : model.parameters())
    if (parameter->variable.requires_grad()) result.push_back(parameter->variable.grad());
  return result;
}

void expect_same(const Case& what, std::int64_t groups) {
  LateGroup group;
  const std::vector<Tensor> wanted = train(what, nullptr, 1), got = train(what, &group, groups);
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), wanted[i].defined()) << i;
    if (got[i].defined()) {
      EXPECT_TRUE(testing::same_bits(got[i], wanted[i])) << what.recipe << ", " << groups << ", " << i;
    }
  }
}

TEST(ExpertOverlap, BitsAreThoseOfOneExchange) {
  for (const std::int64_t groups : {1, 2, 3, 4, 8, 100}) {
    expect_same({}, groups);
    expect_same({.micro_batches = 3}, groups);
  }
  expect_same({.dtype = DType::bf16, .micro_batches = 2}, 4);
}

TEST(ExpertOverlap, ActivationCheckpointing) {
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    for (const std::int64_t groups : {1, 4}) expect_same({.recompute = recompute, .micro_batches = 2}, groups);
}

TEST(ExpertOverlap, Recipes) {
  for (const char* name :
       {"float8_rowwise", "float8_blockwise", "mxfp8", "qat_int8dyn_int4", "qat_nvfp4", "qat_mxfp4_weight_only"})
    for (const bool keep : {false, true})
      for (const Recompute recompute : {Recompute::none, Recompute::selective})
        expect_same({.recipe = name,
                     .options = {.emulate = true, .keep_weights = keep},
                     .dtype = DType::bf16,
                     .recompute = recompute,
                     .micro_batches = 2},
                    4);
}

TEST(ExpertOverlap, Adapters) {
  for (const char* recipe : {"bf16", "float8_rowwise"})
    expect_same({.recipe = recipe, .options = {.emulate = true}, .micro_batches = 2, .adapters = true}, 3);
}

TEST(ExpertOverlap, ExchangesStartBeforeTheFirstWait) {
  LateGroup group;
  (void)train({.more = R"(, "mlp_only_layers": [0])"}, &group, 3);
  const std::string counts = "experts' pairs", weights = "experts' weights";
  std::vector<std::string> rows;
  for (const std::string& event : group.events)
    if (!event.ends_with(weights)) rows.push_back(event);
  EXPECT_THAT(rows, ElementsAre("start " + counts, "wait " + counts,                   //
                                "start dispatch", "start dispatch", "start dispatch",  //
                                "wait dispatch", "start combine",                      //
                                "wait dispatch", "start combine",                      //
                                "wait dispatch", "start combine",                      //
                                "wait combine", "wait combine", "wait combine",        //
                                "start combine gradient", "start combine gradient", "start combine gradient",
                                "wait combine gradient", "start dispatch gradient",  //
                                "wait combine gradient", "start dispatch gradient",  //
                                "wait combine gradient", "start dispatch gradient",  //
                                "wait dispatch gradient", "wait dispatch gradient", "wait dispatch gradient"));
}

// Of a frozen x nothing but the router's gradient is sent back.
TEST(ExpertOverlap, GradientsThatNobodyWantsAreNotSent) {
  LateGroup group;
  const ExpertParallelDispatcher dispatcher(std::shared_ptr<ProcessGroup>(std::shared_ptr<void>(), &group), 2, false,
                                            std::make_shared<ExposedCommTimer>(Device{}));
  const Variable x(Generator(3).normal({5, 4}, DType::f32)),
      weights = Variable::leaf(Generator(4).normal({5, 1}, DType::f32));
  const std::vector<autograd::GroupRowCounts> groups = {{.sent = {2}, .first = {0}, .received = {2}},
                                                        {.sent = {3}, .first = {2}, .received = {3}}};
  autograd::Tape tape;
  {
    const autograd::TapeScope scope(tape);
    autograd::RowDispatch dispatch(x, weights, dispatcher, groups);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto [rows, values, late] = dispatch.wait(i);
      EXPECT_FALSE(rows.requires_grad());
      EXPECT_TRUE(testing::same_bits(rows.value(), x.value().narrow(0, groups[i].first[0], groups[i].sent[0])));
      values.gradient()->contribute(values.value());
    }
  }
  group.events.clear();
  tape.backward();
  EXPECT_TRUE(testing::same_bits(weights.grad(), weights.value()));
  EXPECT_THAT(group.events, ElementsAre("start experts' weights", "start experts' weights", "wait experts' weights",
                                        "wait experts' weights"));
}

}  // namespace
}  // namespace quench::distributed
