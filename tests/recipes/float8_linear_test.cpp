// Float8 linear layers on the CPU: against the golden vectors of TorchAO, exact properties of the scaling, and the ways
// of getting at the same numbers (quantization outputs, recomputation, kept weights).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "autograd/swiglu.h"
#include "core/device/op_profile.h"
#include "nn/modules/linear.h"
#include "nn/optim/adamw.h"
#include "tests/core/ops/golden_file.h"
#include "tests/recipes/float8_testing.h"

namespace quench::recipes {
namespace {

using namespace quench::testing;  // NOLINT: test helpers
using ::testing::HasSubstr;

class Float8Recipe : public ::testing::TestWithParam<std::string_view> {};

// One bf16 ulp, or 1e-5 of the largest value where sums cancel (the order of f32 sums differs).
void expect_golden(const Tensor& ours, const Tensor& golden, std::string_view what) {
  const Tensor a = as_f32(ours), b = as_f32(golden);
  float most = 0;
  for (std::int64_t i = 0; i < b.numel(); ++i) most = std::max(most, std::abs(b.data<float>()[i]));
  std::int64_t beyond = 0, differ = 0;
  for (std::int64_t i = 0; i < b.numel(); ++i) {
    const float x = a.data<float>()[i], y = b.data<float>()[i];
    if (x == y) continue;
    ++differ;
    const float ulp = std::ldexp(1.0f, std::ilogb(std::max(std::abs(x), std::abs(y))) - 7);
    if (!(std::abs(x - y) <= std::max(ulp, 1e-5f * most))) ++beyond;
  }
  EXPECT_EQ(beyond, 0) << what;
  EXPECT_LE(differ, b.numel() / 1000) << what;
}

TEST_P(Float8Recipe, LayerEqualsTorchAo) {
  const GoldenFile golden("float8_linear_emulated.safetensors");
  const std::string name(GetParam());
  const std::string prefix = name.substr(std::string("float8_").size()) + ".";
  const LinearCase c{golden.tensor(prefix + "x"), golden.tensor(prefix + "w"), golden.tensor(prefix + "gy")};
  const LinearResult result = run_linear(*make_kernel(name, c, {}), c);
  expect_golden(result.y, golden.tensor(prefix + "y"), "y");
  expect_golden(result.dx, golden.tensor(prefix + "gx"), "gx");
  expect_golden(result.dw, golden.tensor(prefix + "gw"), "gw");
}

TEST_P(Float8Recipe, PowersOfTwoPassThroughEveryProductExactly) {
  expect_exact_scaling(GetParam(), {});
}

TEST_P(Float8Recipe, WeightGradientsAddUpInTheirBuffer) {
  const LinearCase c{random_matrix(48, 32, 21), random_matrix(16, 32, 22), random_matrix(48, 16, 23)};
  const auto kernel = make_kernel(GetParam(), c, {});
  nn::Parameter weight;
  weight.variable = autograd::Variable::leaf(c.w, DType::f32);
  for (int pass = 0; pass < 2; ++pass) {
    autograd::Tape tape;
    autograd::Variable y;
    {
      const autograd::TapeScope scope(tape);
      y = kernel->apply(autograd::Variable(c.x), weight, {});
    }
    y.gradient()->contribute(c.dy);
    tape.backward();
  }
  const LinearResult once = run_linear(*kernel, c, {}, DType::f32);
  expect_same_values(weight.variable.grad(), scaled(once.dw, std::vector<int>(16, 1), {}), "dw");
}

TEST_P(Float8Recipe, BiasIsAddedAfterTheProductIsRounded) {
  LinearCase c{random_matrix(16, 32, 31), random_matrix(32, 32, 32), random_matrix(16, 32, 33)};
  const LinearResult without = run_linear(*make_kernel(GetParam(), c, {}), c);
  c.bias = random_matrix(1, 32, 34).view({32});
  const LinearResult with = run_linear(*make_kernel(GetParam(), c, {}), c);
  const Tensor expected = Tensor::empty(without.y.shape(), DType::bf16);
  for (std::int64_t r = 0; r < 16; ++r) quench::add({without.y.select(0, r), c.bias, expected.select(0, r)});
  expect_same_values(with.y, expected, "y");
  expect_same_values(with.dx, without.dx, "dx");
}

TEST_P(Float8Recipe, ProductsAreAddedToWhatIsThere) {
  expect_adds_onto(GetParam(), 16, 32, 48, {});
}

// norm -> linear -> gated unit -> linear -> norm, as Llama and Gemma have them, with what producers write next to their
// results and with values recomputed in the backward pass: the same bits in every combination.
TEST_P(Float8Recipe, QuantOutputsAndRecomputeChangeNoBit) {
  constexpr std::int64_t kTokens = 40, kWidth = 32, kInner = 48;
  const LinearCase up{random_matrix(kTokens, kWidth, 41), random_matrix(2 * kInner, kWidth, 42, 0.2f), {}};
  const LinearCase down{random_matrix(kTokens, kInner, 43), random_matrix(kWidth, kInner, 44, 0.2f), {}};
  const Tensor gradient = random_matrix(kTokens, kWidth, 45);
  struct Outcome {
    Tensor y, dx, dup, ddown;
  };
  const auto run = [&](GatedActivation activation, bool fused, autograd::Recompute recompute, bool keep,
                       bool stochastic) {
    const bool is_gemma = activation == GatedActivation::gelu_tanh;
    const RmsNormForm form = is_gemma ? RmsNormForm{1e-6f, 1.0f, true} : RmsNormForm{1e-5f};
    const RecipeOptions options{.keep_weights = keep,
                                .stochastic_gradients = stochastic ? std::optional(std::uint64_t{5}) : std::nullopt};
    const auto first = make_kernel(GetParam(), up, {}, options), second = make_kernel(GetParam(), down, {}, options);
    const autograd::Variable x = autograd::Variable::leaf(up.x);
    nn::Parameter norm, w1, w2;
    const Tensor ones = random_matrix(1, kWidth, 46).view({kWidth});
    norm.variable = autograd::Variable::leaf(ones);
    w1.variable = autograd::Variable::leaf(up.w);
    w2.variable = autograd::Variable::leaf(down.w);
    autograd::Tape tape(recompute);
    tape.set_pass(7);
    autograd::Variable sum, y;
    {
      const autograd::TapeScope scope(tape);
      const auto asked = [&](const nn::LinearKernel& kernel, const nn::Parameter& weight) {
        return fused ? kernel.input_quant_request(weight) : autograd::QuantOutputRequest{};
      };
      const autograd::Variable normed = autograd::rms_norm(x, norm.variable, form, asked(*first, w1));
      EXPECT_EQ(normed.fused().quant_outputs().wanted(), fused);
      const autograd::Variable gate_up = first->apply(normed, w1, {});
      const autograd::Variable inner = autograd::swiglu(gate_up, asked(*second, w2), {}, activation);
      EXPECT_EQ(inner.fused().quant_outputs().wanted(), fused);
      autograd::Variable out = second->apply(inner, w2, {});
      if (is_gemma) out = autograd::rms_norm(out, norm.variable, form);
      std::tie(sum, y) = autograd::add_rms_norm(x, out, norm.variable, form);
    }
    y.gradient()->contribute(gradient);
    tape.backward();
    return Outcome{y.value(), x.grad(), w1.variable.grad(), w2.variable.grad()};
  };
  for (const GatedActivation activation : kGatedActivations)
    for (const bool stochastic : {false, true}) {
      const Outcome plain = run(activation, false, autograd::Recompute::none, false, stochastic);
      for (const bool fused : {false, true})
        for (const auto recompute : {autograd::Recompute::none, autograd::Recompute::selective})
          for (const bool keep : {false, true}) {
            SCOPED_TRACE(::testing::Message() << stochastic << fused << static_cast<int>(recompute) << keep);
            const Outcome other = run(activation, fused, recompute, keep, stochastic);
            expect_same_values(other.y, plain.y, "y");
            expect_same_values(other.dx, plain.dx, "dx");
            expect_same_values(other.dup, plain.dup, "first weight");
            expect_same_values(other.ddown, plain.ddown, "second weight");
          }
    }
}

TEST_P(Float8Recipe, KeptWeightsFollowTheParameter) {
  LinearCase c{random_matrix(16, 32, 51), random_matrix(16, 32, 52).clone(), random_matrix(16, 16, 53)};
  const auto kernel = make_kernel(GetParam(), c, {}, {.keep_weights = true});
  nn::Parameter weight;
  weight.variable = autograd::Variable::leaf(c.w);
  const auto forward = [&] {
    const autograd::NoGrad no_grad;
    return kernel->apply(autograd::Variable(c.x), weight, {}).value();
  };
  const Tensor before = forward();
  const Tensor other = random_matrix(16, 32, 54, 3.0f);
  Tensor value = weight.variable.value();
  value.copy_from(other);
  expect_same_values(forward(), before, "codes are kept while the version stands");
  weight.mark_changed();
  c.w = other;
  expect_same_values(forward(), run_linear(*make_kernel(GetParam(), c, {}), c).y, "codes of the new version");
}

// Calls of an op while `body` runs.
std::int64_t calls_of(std::string_view op, const std::function<void()>& body) {
  OpProfile::start(Device{});
  body();
  std::int64_t calls = 0;
  for (const OpTime& time : OpProfile::stop())
    if (time.label == op) calls += time.calls;
  return calls;
}

// Codes and scales that only a backward pass reads are not made where none follows, and are there when one does.
TEST_P(Float8Recipe, AForwardPassAloneMakesWhatItReads) {
  const LinearCase c{random_matrix(48, 32, 81), random_matrix(16, 32, 82), random_matrix(48, 16, 83)};
  const LinearResult expected = run_linear(*make_kernel(GetParam(), c, {}), c);
  const auto kernel = make_kernel(GetParam(), c, {});
  nn::Parameter weight;
  weight.variable = autograd::Variable::leaf(c.w, DType::bf16);
  const auto x = autograd::Variable::leaf(c.x);
  Tensor y;
  const auto forward = [&] { y = kernel->apply(x, weight, {}).value(); };
  // One scale for each of x and W, and two passes for their maxima where they do not come with the codes.
  const bool tensorwise = GetParam() == "float8_tensorwise";
  EXPECT_EQ(calls_of("float8_scale", forward), tensorwise ? 2 : 0);
  EXPECT_EQ(calls_of("amax", forward), tensorwise ? 2 : 0);
  EXPECT_EQ(calls_of("float8_cast", forward) + calls_of("float8_rows", forward), 2);
  expect_same_values(y, expected.y, "y");
  // The first run of a layer under full recompute, then the second, which the backward pass follows.
  autograd::Tape tape;
  autograd::Variable again;
  {
    const autograd::TapeScope scope(tape);
    again = kernel->apply(x, weight, {});
  }
  again.gradient()->contribute(c.dy);
  tape.backward();
  expect_same_values(again.value(), expected.y, "y again");
  expect_same_values(x.grad(), expected.dx, "dx");
  expect_same_values(weight.variable.grad(), expected.dw, "dw");
}

// A frozen weight has no wgrad GEMM.
TEST_P(Float8Recipe, FrozenWeightsAskForLess) {
  const LinearCase c{random_matrix(16, 32, 84), random_matrix(16, 32, 85), random_matrix(16, 16, 86)};
  const auto kernel = make_kernel(GetParam(), c, {});
  nn::Parameter trained, frozen;
  trained.variable = autograd::Variable::leaf(c.w);
  frozen.variable = autograd::Variable(c.w);
  autograd::Tape tape;
  const autograd::TapeScope scope(tape);
  EXPECT_EQ(kernel->input_quant_request(trained).column_amax, GetParam() == "float8_rowwise");
  EXPECT_FALSE(kernel->input_quant_request(frozen).column_amax);
  const autograd::QuantOutputRequest wanted = kernel->input_quant_request(frozen);
  EXPECT_EQ(wanted.amax, GetParam() == "float8_tensorwise");
  EXPECT_EQ(wanted.rows, GetParam() != "float8_tensorwise");
}

// The end of a run may be in high precision, and a roll-back may lead out of it again: the optimizer stays.
TEST_P(Float8Recipe, LayersMayChangeTheirKernelUnderAnOptimizer) {
  const LinearCase c{random_matrix(16, 32, 71), random_matrix(16, 32, 72), random_matrix(16, 16, 73)};
  nn::Linear layer(32, 16, {.parameters = {.dtype = DType::bf16, .grad_dtype = DType::bf16}});
  Tensor(layer.weight().variable.value()).copy_from(c.w);
  layer.weight().name = "weight";
  layer.set_kernel(make_kernel(GetParam(), c, {}));
  nn::AdamW optimizer({&layer.weight()}, {});
  const Tensor scale = Tensor::empty({1}, DType::f32);
  *scale.data<float>() = 1.0f;
  for (std::int64_t step = 1; step <= 4; ++step) {
    if (step == 2) layer.set_kernel(nn::high_precision_linear_kernel());
    if (step == 3) layer.set_kernel(make_kernel(GetParam(), c, {}));
    autograd::Tape tape;
    autograd::Variable y;
    {
      const autograd::TapeScope scope(tape);
      y = layer.forward(autograd::Variable(c.x));
    }
    y.gradient()->contribute(c.dy);
    tape.backward();
    optimizer.step(1e-2, step, scale);
    optimizer.zero_grad();
    const LinearCase now{c.x, layer.weight().variable.value().clone(), c.dy};
    const autograd::NoGrad no_grad;
    if (step != 2)
      expect_same_values(layer.forward(autograd::Variable(c.x)).value(),
                         run_linear(*make_kernel(GetParam(), now, {}), now).y, "y");
  }
}

TEST_P(Float8Recipe, LayersWithoutAFloat8ProductAreNotConverted) {
  const nn::LinearInfo info{.name = "layer", .in_features = 32, .out_features = 32};
  const RecipeOptions options{.high_precision = {LinearGemm::forward, LinearGemm::dgrad, LinearGemm::wgrad}};
  const LinearPlan plan = find_recipe(GetParam()).plan(info, options);
  EXPECT_EQ(plan.kernel, nullptr);
  EXPECT_THAT(plan.skipped_because, HasSubstr("recipe.high_precision_gemms"));
}

TEST_P(Float8Recipe, LayersThatTensorCoresDoNotTakeAreSkippedOrPadded) {
  const LinearCase c{random_matrix(8, 24, 61), random_matrix(20, 24, 62), random_matrix(8, 20, 63)};
  const nn::LinearInfo info{.name = "layer", .in_features = 24, .out_features = 20};
  const LinearPlan plan = find_recipe(GetParam()).plan(info, {});
  EXPECT_EQ(plan.kernel, nullptr);
  EXPECT_THAT(plan.skipped_because, HasSubstr("20 x 24 are not multiples of 16"));
  const LinearResult result = run_linear(*make_kernel(GetParam(), c, {}, {.pad = true}), c);
  EXPECT_EQ(result.y.shape(), Shape({8, 20}));
  EXPECT_EQ(result.dw.shape(), Shape({20, 24}));
}

INSTANTIATE_TEST_SUITE_P(All, Float8Recipe, ::testing::ValuesIn(kFloat8Recipes),
                         [](const auto& entry) { return std::string(entry.param); });

}  // namespace
}  // namespace quench::recipes
