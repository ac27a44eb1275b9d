// Float8 recipes on a GPU: layers against their emulation, exact scaling, whole runs.

#include <gtest/gtest.h>

#include "tests/cuda_model/gpu_runs.h"
#include "tests/recipes/float8_testing.h"

namespace quench {
namespace {

using namespace quench::testing;  // NOLINT: test helpers

class CudaFloat8 : public ::testing::TestWithParam<std::string_view> {};

// 20 log10(|b| / |a - b|)
double sqnr(const Tensor& a, const Tensor& b) {
  const Tensor x = as_f32(a), y = as_f32(b);
  double signal = 0, noise = 0;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const double exact = static_cast<double>(y.data<float>()[i]);
    const double error = static_cast<double>(x.data<float>()[i]) - exact;
    signal += exact * exact;
    noise += error * error;
  }
  return noise == 0 ? 999 : 10 * std::log10(signal / noise);
}

// Operands are cast to the same bits; what is left is the tensor core's accumulation and the rounding to bf16 (2^-9
// relative, about 53 dB).
TEST_P(CudaFloat8, LayersFollowTheirEmulation) {
  const LinearCase c{random_matrix(256, 512, 71), random_matrix(384, 512, 72, 0.05f), random_matrix(256, 384, 73)};
  const recipes::RecipeOptions native{.fast_accumulation = {}};
  const LinearResult gpu = run_linear(*make_kernel(GetParam(), c, kGpu, native), c, kGpu);
  const LinearResult emulated = run_linear(*make_kernel(GetParam(), c, kGpu, {.emulate = true}), c, kGpu);
  const LinearResult cpu = run_linear(*make_kernel(GetParam(), c, {}), c);
  EXPECT_GT(sqnr(gpu.y, cpu.y), 48.0);
  EXPECT_GT(sqnr(gpu.dx, cpu.dx), 48.0);
  EXPECT_GT(sqnr(gpu.dw, cpu.dw), 48.0);
  EXPECT_GT(sqnr(emulated.y, cpu.y), 55.0);
  EXPECT_GT(sqnr(emulated.dx, cpu.dx), 55.0);
  EXPECT_GT(sqnr(emulated.dw, cpu.dw), 55.0);
  const LinearResult fast = run_linear(*make_kernel(GetParam(), c, kGpu), c, kGpu);
  EXPECT_GT(sqnr(fast.y, cpu.y), 40.0);
}

// Other draws than the CPU's would leave about 25 dB. Padding moves no element to another row or column.
TEST_P(CudaFloat8, StochasticGradientsHaveTheDrawsOfTheCpu) {
  for (const auto [m, k, n] : {std::array<std::int64_t, 3>{256, 512, 384}, {37, 64, 48}, {64, 40, 24}, {3, 72, 88}}) {
    SCOPED_TRACE(::testing::Message() << m << " x " << k << " x " << n);
    const LinearCase c{random_matrix(m, k, 74), random_matrix(n, k, 75, 0.1f), random_matrix(m, n, 76)};
    const recipes::RecipeOptions options{.pad = true, .stochastic_gradients = 5};
    const LinearResult gpu = run_linear(*make_kernel(GetParam(), c, kGpu, options), c, kGpu);
    const LinearResult cpu = run_linear(*make_kernel(GetParam(), c, {}, options), c);
    const LinearResult nearest = run_linear(*make_kernel(GetParam(), c, {}, {.pad = true}), c);
    // int8's steps are finer: other draws would leave about 38 dB.
    const bool int8 = GetParam() == std::string_view("int8_rowwise");
    EXPECT_GT(sqnr(gpu.dx, cpu.dx), int8 ? 48.0 : 40.0);
    EXPECT_GT(sqnr(gpu.dw, cpu.dw), int8 ? 48.0 : 40.0);
    EXPECT_LT(sqnr(nearest.dx, cpu.dx), int8 ? 45.0 : 35.0);
  }
}

TEST_P(CudaFloat8, PowersOfTwoPassThroughEveryProductExactly) {
  expect_exact_scaling(GetParam(), kGpu);
}

// Token counts and sizes that the tensor cores do not take.
TEST_P(CudaFloat8, OddSizesArePadded) {
  for (const auto [m, k, n] : {std::array<std::int64_t, 3>{37, 64, 48}, {64, 40, 24}, {3, 72, 88}, {1, 64, 64}}) {
    SCOPED_TRACE(::testing::Message() << m << " x " << k << " x " << n);
    const LinearCase c{random_matrix(m, k, 81), random_matrix(n, k, 82, 0.1f), random_matrix(m, n, 83)};
    const LinearResult gpu = run_linear(*make_kernel(GetParam(), c, kGpu, {.pad = true}), c, kGpu);
    const LinearResult cpu = run_linear(*make_kernel(GetParam(), c, {}, {.pad = true}), c);
    EXPECT_GT(sqnr(gpu.y, cpu.y), 40.0);
    EXPECT_GT(sqnr(gpu.dx, cpu.dx), 40.0);
    EXPECT_GT(sqnr(gpu.dw, cpu.dw), 40.0);
  }
}

TEST_P(CudaFloat8, ProductsAreAddedToWhatIsThere) {
  expect_adds_onto(GetParam(), 128, 64, 96, kGpu);
  expect_adds_onto(GetParam(), 37, 72, 88, kGpu);  // padded
}

// Sinks, recomputation and kept weights are ways to the same bits.
TEST_P(CudaFloat8, RunsAreTheSameHoweverOperandsAreMade) {
  const TinyRun tiny;
  const std::string recipe = "--recipe.name=" + std::string(GetParam());
  const std::vector<std::string> base{"--training.dtype=bf16", "--training.deterministic=true", "--training.steps=6",
                                      recipe};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more);
    return all;
  };
  tiny.run(tiny.config("plain", base), kGpu);
  tiny.run(tiny.config("kept", with({"--recipe.keep_weights=true"})), kGpu);
  tiny.run(tiny.config("selective", with({"--training.activation_checkpoint=selective"})), kGpu);
  tiny.run(tiny.config("away", with({"--training.activation_checkpoint=selective", "--training.offload_layers=1"})),
           kGpu);
  tiny.run(tiny.config("state", with({"--optimizer.offload_ratio=0.6"})), kGpu);
  tiny.run(tiny.config("again", with({"--training.activation_checkpoint=selective", "--training.offload_layers=1",
                                      "--training.recompute_mlp_layers=1", "--recipe.keep_weights=true"})),
           kGpu);
  const std::string stochastic = "--recipe.gradient_rounding=stochastic";
  tiny.run(tiny.config("stochastic", with({stochastic})), kGpu);
  tiny.run(tiny.config("stochastic_again", with({stochastic, "--training.activation_checkpoint=selective"})), kGpu);
  set_deterministic(false);
  EXPECT_EQ(tiny.losses("stochastic_again"), tiny.losses("stochastic"));
  EXPECT_NE(tiny.losses("stochastic"), tiny.losses("plain"));
  EXPECT_EQ(tiny.losses("state"), tiny.losses("plain"));
  EXPECT_EQ(tiny.losses("kept"), tiny.losses("plain"));
  EXPECT_EQ(tiny.losses("selective"), tiny.losses("plain"));
  EXPECT_EQ(tiny.losses("away"), tiny.losses("plain"));
  EXPECT_EQ(tiny.losses("again"), tiny.losses("plain"));
}

// The second run of a product has the sizes of the first, padded tokens included.
TEST_P(CudaFloat8, ProductsRunAgainWithTheSameBits) {
  const TinyRun tiny;
  for (const char* length : {"23", "24"}) {
    const std::vector<std::string> base{"--training.dtype=bf16",
                                        "--training.deterministic=true",
                                        "--training.steps=4",
                                        "--training.activation_checkpoint=selective",
                                        "--metrics.health_every=2",
                                        "--recipe.name=" + std::string(GetParam()),
                                        std::string("--data.seq_len=") + length};
    const std::string plain = std::string("plain") + length, again = std::string("again") + length;
    std::vector<std::string> options = base;
    tiny.run(tiny.config(plain, options), kGpu);
    options.emplace_back("--training.recompute_mlp_layers=2");
    tiny.run(tiny.config(again, options), kGpu);
    set_deterministic(false);
    EXPECT_EQ(tiny.losses(again), tiny.losses(plain)) << length;
    expect_same_tensors(tiny.checkpoint(again, 4), tiny.checkpoint(plain, 4));
  }
}

TEST_P(CudaFloat8, RunsFollowTheCpu) {
  const TinyRun tiny;
  const std::vector<std::string> options{"--training.dtype=bf16", "--recipe.name=" + std::string(GetParam())};
  tiny.run(tiny.config("gpu", options), kGpu);
  tiny.run(tiny.config("cpu", options));
  const auto gpu = tiny.losses("gpu"), cpu = tiny.losses("cpu");
  ASSERT_EQ(gpu.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(loss_of(gpu[i]) / loss_of(cpu[i]), 1.0, 0.02) << cpu[i];
}

// Layers as wide as those whose norms and rotations write codes: the same bits as casts of the values that the health
// log needs, whatever is recomputed.
TEST(CudaDelayedFloat8, CodesOfProducersTrainAsCastsOfValues) {
  const TinyRun tiny;
  for (const std::string level : {"none", "selective", "full"})
    for (const std::string every : {"0", "1"})
      tiny.run(tiny.config(level + every,
                           {"--training.dtype=bf16", "--training.deterministic=true", "--training.steps=5",
                            "--recipe.name=float8_tensorwise", "--recipe.scaling=delayed", "--model.hidden_size=1152",
                            "--model.num_attention_heads=9", "--model.num_key_value_heads=3",
                            "--training.activation_checkpoint=" + level, "--metrics.health_every=" + every}),
               kGpu);
  set_deterministic(false);
  const auto expect_same = [&](const std::string& a, const std::string& b) {
    EXPECT_EQ(tiny.losses(a), tiny.losses(b)) << a << ' ' << b;
    expect_same_tensors(tiny.checkpoint(a, 5), tiny.checkpoint(b, 5));
  };
  expect_same("none1", "none0");
  expect_same("selective0", "none0");
  expect_same("selective1", "none0");
  expect_same("full1", "full0");
}

TEST_P(CudaFloat8, ResumeIsExact) {
  expect_exact_resume({"--training.dtype=bf16", "--recipe.name=" + std::string(GetParam())});
  expect_exact_resume(
      {"--training.dtype=bf16", "--recipe.name=" + std::string(GetParam()), "--recipe.gradient_rounding=stochastic"});
}

// Codes of the base come straight from its 4-bit values, or, with rows that blocks do not divide, through f32.
TEST_P(CudaFloat8, AdaptersOverAnNf4BaseFollowTheCpu) {
  for (const char* width : {"128", "96"}) {
    const TinyRun tiny;
    const std::vector<std::string> options{"--training.dtype=bf16",
                                           "--recipe.name=" + std::string(GetParam()),
                                           "--lora.rank=8",
                                           "--lora.base=nf4",
                                           std::string("--model.hidden_size=") + width,
                                           "--model.intermediate_size=192",
                                           "--training.steps=20",
                                           "--optimizer.lr=1e-3"};
    tiny.run(tiny.config("gpu", options), kGpu);
    tiny.run(tiny.config("cpu", options));
    const auto gpu = tiny.losses("gpu"), cpu = tiny.losses("cpu");
    ASSERT_EQ(gpu.size(), cpu.size());
    for (std::size_t i = 0; i < cpu.size(); ++i)
      EXPECT_NEAR(loss_of(gpu[i]) / loss_of(cpu[i]), 1.0, 0.005) << width << ": " << cpu[i];
  }
  expect_exact_resume({"--training.dtype=bf16", "--recipe.name=" + std::string(GetParam()), "--lora.rank=8",
                       "--lora.base=nf4", "--model.hidden_size=128", "--model.intermediate_size=256"});
}

INSTANTIATE_TEST_SUITE_P(All, CudaFloat8,
                         ::testing::Values("float8_tensorwise", "float8_rowwise", "float8_rowwise_with_gw_hp",
                                           "int8_rowwise"),
                         [](const auto& entry) { return std::string(entry.param); });

}  // namespace
}  // namespace quench
