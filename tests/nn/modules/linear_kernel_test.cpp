#include "nn/modules/linear_kernel.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "autograd/functions.h"
#include "autograd/swiglu.h"
#include "nn/modules/linear.h"
#include "nn/modules/low_rank_adapter.h"
#include "tests/nn/modules/layer_reference.h"

namespace quench::nn {
namespace {

using reference::numbers;

constexpr std::array kEpilogues{LinearEpilogue::none, LinearEpilogue::gated_activation, LinearEpilogue::accumulate};
constexpr std::array kModes{LinearMode::recorded, LinearMode::inference, LinearMode::recompute};

struct NoHead final : HeadGemms {
  void logits(const Tensor&, const Tensor&) override {}
  void gradients(const Tensor&, const Tensor&, const Tensor&, const Tensor&, float) override {}
};

// Overrides every virtual function; logs its name and arguments, and returns values unlike the defaults.
class MockKernel final : public LinearKernel {
 public:
  MockKernel() : scales_(make_parameter({6, 1}, {})) { scales_.scales = true; }

  struct Seen {
    const void* x = nullptr;
    const AddedNorm* norm = nullptr;
    LinearEpilogue epilogue = LinearEpilogue::none;
    const void* out = nullptr;
    LinearMode mode = LinearMode::recorded;
    GatedActivation activation = GatedActivation::silu;
    const Parameter* weight = nullptr;
    Shape bias;
    bool operator==(const Seen&) const = default;
  };
  static Seen seen(const LinearCall& call, const Parameter& weight, const Weight& bias) {
    const auto data = [](const Tensor& t) { return t.defined() ? t.raw_data() : nullptr; };
    return {data(call.x.value()), call.norm, call.epilogue, data(call.out), call.mode,
            call.activation,      &weight,   bias.shape()};
  }

  [[nodiscard]] bool supports(const LinearCall& call, const Parameter& weight, const Weight& bias) const override {
    asked.push_back(seen(call, weight, bias));
    return supported;
  }
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request(const Parameter& weight) const override {
    log("input_quant_request", weight);
    return {.amax = true};
  }
  [[nodiscard]] WeightRequirements weight_requirements(const Parameter& weight) const override {
    log("weight_requirements", weight);
    return {.gathered = {.forward = autograd::WeightFormat{}}, .amax = true};
  }
  [[nodiscard]] std::vector<KernelParameter> parameters() const override { return {{"scales", &scales_}}; }
  void begin_with(const Parameter& weight) const override { log("begin_with", weight); }
  [[nodiscard]] std::shared_ptr<const LinearKernel> with_adapter(
      const std::shared_ptr<LowRankAdapter>& adapter) const override {
    adapters.push_back(adapter);
    return high_precision_linear_kernel();
  }
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const Parameter& weight) const override {
    log("head_gemms", weight);
    return std::make_unique<NoHead>();
  }
  [[nodiscard]] std::string_view name() const override { return "mock"; }

  bool supported = true;
  Tensor y = numbers({3, 6}, 8), gated = numbers({3, 3}, 9);
  mutable Parameter scales_;
  mutable std::vector<Seen> asked, ran;
  mutable std::vector<std::pair<std::string, const Parameter*>> queries;
  mutable std::vector<std::shared_ptr<LowRankAdapter>> adapters;

 private:
  [[nodiscard]] LinearOutput do_run(const LinearCall& call, const Parameter& weight,
                                    const Weight& bias) const override {
    ran.push_back(seen(call, weight, bias));
    return {Variable(y), gated};
  }
  void log(std::string query, const Parameter& weight) const { queries.emplace_back(std::move(query), &weight); }
};

struct Operands {
  Parameter weight = make_parameter({6, 4}, {}, Initializer::zeros);
  Weight bias{Variable(numbers({6}, 2))};
  Variable x{numbers({3, 4}, 3)};
  AddedNorm norm;
  Tensor out = numbers({3, 6}, 4);

  // All combinations of prologue, epilogue and mode.
  [[nodiscard]] std::vector<LinearCall> calls() const {
    std::vector<LinearCall> all;
    for (const AddedNorm* const prologue : {static_cast<const AddedNorm*>(nullptr), &norm})
      for (const LinearEpilogue epilogue : kEpilogues)
        for (const LinearMode mode : kModes)
          all.push_back({x, prologue, epilogue, epilogue == LinearEpilogue::accumulate ? out : Tensor(), mode});
    return all;
  }
};

TEST(LinearKernelWrapper, ForwardsEveryCall) {
  const auto mock = std::make_shared<MockKernel>();
  const LinearKernelWrapper wrapper(mock);
  const Operands o;
  ASSERT_EQ(o.calls().size(), 18u);
  for (const LinearCall& call : o.calls()) {
    const auto expected = MockKernel::seen(call, o.weight, o.bias);
    mock->asked.clear();
    mock->ran.clear();
    EXPECT_TRUE(wrapper.supports(call, o.weight, o.bias));
    ASSERT_EQ(mock->asked.size(), 1u);
    EXPECT_EQ(mock->asked.front(), expected);
    const LinearOutput output = wrapper.run(call, o.weight, o.bias);
    ASSERT_EQ(mock->ran.size(), 1u);
    EXPECT_EQ(mock->ran.front(), expected);
    EXPECT_EQ(output.y.value().raw_data(), mock->y.raw_data());
    EXPECT_EQ(output.gated.raw_data(), mock->gated.raw_data());
  }
  mock->ran.clear();
  EXPECT_EQ(wrapper.apply(o.x, o.weight, o.bias).value().raw_data(), mock->y.raw_data());
  EXPECT_EQ(wrapper.recompute(o.x, o.weight, o.bias).raw_data(), mock->y.raw_data());
  ASSERT_EQ(mock->ran.size(), 2u);
  EXPECT_EQ(mock->ran[0], MockKernel::seen({.x = o.x}, o.weight, o.bias));
  EXPECT_EQ(mock->ran[1], MockKernel::seen({.x = o.x, .mode = LinearMode::recompute}, o.weight, o.bias));
}

TEST(LinearKernelWrapper, ForwardsUnsupportedCallsAsUnsupported) {
  const auto mock = std::make_shared<MockKernel>();
  mock->supported = false;
  const LinearKernelWrapper wrapper(mock);
  const Operands o;
  for (const LinearCall& call : o.calls()) {
    EXPECT_FALSE(wrapper.supports(call, o.weight, o.bias));
    EXPECT_THROW((void)wrapper.run(call, o.weight, o.bias), Error);
  }
  EXPECT_TRUE(mock->ran.empty());
}

TEST(LinearKernelWrapper, ForwardsEveryQuery) {
  const auto mock = std::make_shared<MockKernel>();
  const LinearKernelWrapper wrapper(mock);
  const Operands o;
  EXPECT_TRUE(wrapper.input_quant_request(o.weight).amax);
  const WeightRequirements requirements = wrapper.weight_requirements(o.weight);
  EXPECT_TRUE(requirements.amax);
  EXPECT_TRUE(requirements.gathered.forward);
  ASSERT_EQ(wrapper.parameters().size(), 1u);
  EXPECT_EQ(wrapper.parameters().front().parameter, &mock->scales_);
  EXPECT_EQ(wrapper.weight_scales(), &mock->scales_);
  wrapper.begin_with(o.weight);
  EXPECT_NE(wrapper.head_gemms(o.weight), nullptr);
  const auto adapter =
      std::make_shared<LowRankAdapter>(std::vector<LowRankPiece>{{"proj", 0, 6, 0, 2}}, 4, ParameterOptions{});
  EXPECT_EQ(wrapper.with_adapter(adapter), high_precision_linear_kernel());
  EXPECT_EQ(mock->adapters, std::vector{adapter});
  EXPECT_EQ(wrapper.name(), "mock");
  const std::vector<std::pair<std::string, const Parameter*>> expected{{"input_quant_request", &o.weight},
                                                                       {"weight_requirements", &o.weight},
                                                                       {"begin_with", &o.weight},
                                                                       {"head_gemms", &o.weight}};
  EXPECT_EQ(mock->queries, expected);
}

class Observer final : public LinearObserver {
 public:
  using LinearObserver::LinearObserver;
  mutable int observed = 0;

 private:
  [[nodiscard]] Variable observe(const Variable& x, const Parameter& weight, const Weight& bias) const override {
    ++observed;
    return wrapped().apply(x, weight, bias);
  }
};

TEST(LinearObserver, ObservesAllButRecomputeAndSupportsNoFusedCall) {
  const auto mock = std::make_shared<MockKernel>();
  const Observer observer(mock);
  const Operands o;
  for (const LinearCall& call : o.calls()) {
    EXPECT_EQ(observer.supports(call, o.weight, o.bias), !call.is_fused());
    if (call.is_fused()) {
      EXPECT_THROW((void)observer.run(call, o.weight, o.bias), Error);
      continue;
    }
    observer.observed = 0;
    mock->ran.clear();
    EXPECT_EQ(observer.run(call, o.weight, o.bias).y.value().raw_data(), mock->y.raw_data());
    EXPECT_EQ(observer.observed, call.mode == LinearMode::recompute ? 0 : 1);
    ASSERT_EQ(mock->ran.size(), 1u);
    EXPECT_EQ(mock->ran.front().mode, call.mode == LinearMode::recompute ? call.mode : LinearMode::recorded);
  }
  EXPECT_EQ(observer.with_adapter(nullptr), nullptr);
}

class PlainKernel final : public LinearKernel {
 public:
  [[nodiscard]] std::string_view name() const override { return "plain"; }

 private:
  [[nodiscard]] LinearOutput do_run(const LinearCall& call, const Parameter& weight,
                                    const Weight& bias) const override {
    return {autograd::linear(call.x, weight.weight(), bias)};
  }
};

// By default: neither fused calls nor a recompute of the kernel's own, which apply() without a tape replaces.
TEST(LinearKernel, DefaultsToPlainCalls) {
  const PlainKernel kernel;
  Operands o;
  o.weight.variable.set_value(numbers({6, 4}, 5));
  for (const LinearCall& call : o.calls()) {
    const bool plain = !call.is_fused() && call.mode != LinearMode::recompute;
    EXPECT_EQ(kernel.supports(call, o.weight, o.bias), plain);
    if (plain)
      EXPECT_TRUE(kernel.run(call, o.weight, o.bias).y.defined());
    else
      EXPECT_THROW((void)kernel.run(call, o.weight, o.bias), Error);
  }
  autograd::Tape tape;
  const autograd::TapeScope scope(tape);
  const Variable y = kernel.apply(o.x, o.weight, o.bias);
  EXPECT_TRUE(y.requires_grad());
  const Tensor recomputed = kernel.recompute(o.x, o.weight, o.bias);
  EXPECT_EQ(0, std::memcmp(recomputed.raw_data(), y.value().raw_data(), recomputed.nbytes()));
}

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(0, std::memcmp(a.raw_data(), b.raw_data(), a.nbytes()));
}

TEST(LinearKernel, FusedInferenceHasTheBitsOfSeparateOps) {
  const LinearKernel& kernel = *high_precision_linear_kernel();
  Operands o;
  o.weight.variable.set_value(numbers({6, 4}, 5));
  const Variable x(numbers({1, 4}, 3)), residual(numbers({1, 4}, 6));
  const Weight weight{Variable(numbers({4}, 7))};
  const auto [sum, normed] = autograd::add_rms_norm(residual, x, weight, 1e-5f);
  for (const bool has_norm : {false, true})
    for (const std::optional<GatedActivation> gated :
         {std::optional<GatedActivation>(), std::optional(GatedActivation::silu),
          std::optional(GatedActivation::gelu_tanh)}) {
      o.norm = {
          .residual = residual.value(), .weight = weight.acquire().value(), .sum = Tensor::empty({1, 4}, DType::f32)};
      const LinearCall call{.x = x,
                            .norm = has_norm ? &o.norm : nullptr,
                            .epilogue = gated ? LinearEpilogue::gated_activation : LinearEpilogue::none,
                            .mode = LinearMode::inference,
                            .activation = gated.value_or(GatedActivation::silu)};
      ASSERT_TRUE(kernel.supports(call, o.weight, o.bias));
      const LinearOutput fused = kernel.run(call, o.weight, o.bias);
      const Variable y = kernel.apply(has_norm ? normed : x, o.weight, o.bias);
      EXPECT_NE(fused.y.defined(), gated.has_value());
      expect_same_bits(gated ? fused.gated : fused.y.value(),
                       gated ? autograd::swiglu(y, {}, {}, *gated).value() : y.value());
      if (has_norm) expect_same_bits(o.norm.sum, sum.value());
    }
}

TEST(Linear, FallsBackToSeparateOpsForUnsupportedFusions) {
  Linear layer(4, 6, {.bias = true});
  Tensor(layer.weight().variable.value()).copy_from(numbers({6, 4}, 5));
  const Variable x(numbers({3, 4}, 3));
  const LinearCall gated{.x = x, .epilogue = LinearEpilogue::gated_activation, .mode = LinearMode::inference};
  EXPECT_TRUE(layer.run_fused(gated));
  layer.set_kernel(std::make_shared<PlainKernel>());
  EXPECT_FALSE(layer.run_fused(gated));
  const LinearOutput plain = layer.forward_gated(x, GatedActivation::silu);
  EXPECT_FALSE(plain.gated.defined());
  expect_same_bits(plain.y.value(), layer.forward(x).value());
  const auto mock = std::make_shared<MockKernel>();
  layer.set_kernel(mock);
  EXPECT_TRUE(layer.weight().amax.defined());
  EXPECT_EQ(layer.forward_gated(x, GatedActivation::gelu_tanh).gated.raw_data(), mock->gated.raw_data());
  EXPECT_EQ(mock->ran.back().epilogue, LinearEpilogue::gated_activation);
  EXPECT_EQ(mock->ran.back().activation, GatedActivation::gelu_tanh);
  EXPECT_EQ(mock->ran.back().mode, LinearMode::recorded);
}

}  // namespace
}  // namespace quench::nn
