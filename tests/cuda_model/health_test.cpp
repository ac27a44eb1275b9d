// The health of float8 layers on a GPU: what the CPU measures, and no change to what is measured.

#include <gtest/gtest.h>

#include "recipes/health.h"
#include "tests/cuda/gpu.h"
#include "tests/recipes/float8_testing.h"
#include "tests/train/run/trainer_fixture.h"

namespace quench {
namespace {

using namespace quench::testing;  // NOLINT: test helpers

class CudaHealth : public ::testing::TestWithParam<std::string_view> {};

std::vector<recipes::OperandHealth> health_of(std::string_view recipe, const LinearCase& c, Device device) {
  const recipes::RecipeOptions options{.pad = true, .health = std::make_shared<recipes::HealthRecorder>()};
  const auto kernel = make_kernel(recipe, c, device, options);
  options.health->arm();
  (void)run_linear(*kernel, c, device);
  return options.health->collect();
}

// Codes are the same bits, sums are in f64; padding on the GPU counts for nothing.
TEST_P(CudaHealth, LayersMeasureWhatTheCpuMeasures) {
  for (const auto [m, k, n] : {std::array<std::int64_t, 3>{256, 512, 384}, {37, 40, 24}, {1, 64, 64}}) {
    SCOPED_TRACE(::testing::Message() << m << " x " << k << " x " << n);
    const LinearCase c{random_matrix(m, k, 91), random_matrix(n, k, 92, 0.1f), random_matrix(m, n, 93)};
    const auto gpu = health_of(GetParam(), c, kGpu), cpu = health_of(GetParam(), c, {});
    ASSERT_EQ(gpu.size(), 3u);
    ASSERT_EQ(cpu.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      SCOPED_TRACE(to_string(cpu[i].operand));
      EXPECT_EQ(gpu[i].operand, cpu[i].operand);
      EXPECT_EQ(gpu[i].format, cpu[i].format);
      EXPECT_EQ(gpu[i].elements, cpu[i].elements);
      EXPECT_EQ(gpu[i].order, cpu[i].order);
      EXPECT_EQ(gpu[i].error.most, cpu[i].error.most);
      EXPECT_EQ(gpu[i].error.saturated, cpu[i].error.saturated);
      EXPECT_EQ(gpu[i].error.underflows, cpu[i].error.underflows);
      EXPECT_NEAR(gpu[i].error.signal, cpu[i].error.signal, 1e-9 * cpu[i].error.signal);
      EXPECT_NEAR(gpu[i].error.noise, cpu[i].error.noise, 1e-9 * cpu[i].error.noise);
    }
  }
}

TEST_P(CudaHealth, ARunIsTheSameMeasuredOrNot) {
  const TinyRun tiny;
  const auto config = [&](const std::string& name, int every) {
    return tiny.config(name, {"--training.steps=6", "--training.dtype=bf16", "--training.deterministic=true",
                              "--recipe.name=" + std::string(GetParam()), "--checkpoint.enable=false",
                              "--metrics.health_every=" + std::to_string(every)});
  };
  tiny.run(config("off", 0), kGpu);
  tiny.run(config("on", 1), kGpu);
  EXPECT_EQ(tiny.losses("on"), tiny.losses("off"));
  std::istringstream lines(read_file(tiny.folder("on") / "metrics" / "health.jsonl"));
  int records = 0;
  for (std::string line; std::getline(lines, line); ++records)
    EXPECT_EQ(Json::parse(line).at("layers").as_object().size(), 8u);
  EXPECT_EQ(records, 6);
}

INSTANTIATE_TEST_SUITE_P(Recipes, CudaHealth,
                         ::testing::Values("float8_tensorwise", "float8_rowwise", "float8_rowwise_with_gw_hp",
                                           "int8_rowwise"));

}  // namespace
}  // namespace quench
