// The probe and recipe.name "auto" on a GPU with float8 tensor cores.

#include <gtest/gtest.h>

#include <algorithm>

#include "core/device/determinism.h"
#include "core/memory/allocator.h"
#include "recipes/float8/hardware.h"
#include "tests/cuda/gpu.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/probe/auto_recipe.h"
#include "train/probe/probe.h"

namespace quench {
namespace {

using testing::expect_same_tensors;
using testing::TinyRun;
using Words = std::vector<std::string>;

using testing::kGpu;

const Words kWide{"--model.hidden_size=512", "--model.intermediate_size=1536", "--model.num_hidden_layers=3",
                  "--training.dtype=bf16"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(CudaProbe, MeasuresOnTensorCoresAndGivesTheMemoryBack) {
  const TinyRun tiny;
  if (!recipes::has_float8_gemms(kGpu)) GTEST_SKIP() << "needs float8 tensor cores (compute capability 8.9)";
  std::vector<std::int64_t> left;  // bytes after each probe; the first one makes what libraries keep
  for (const std::string level : {"none", "selective", "full"}) {
    SCOPED_TRACE(level);
    const RunConfig config = tiny.config("run", with(kWide, {"--training.activation_checkpoint=" + level}));
    const ProbeResult result = run_probe(config, kGpu);
    EXPECT_FALSE(result.emulated);
    EXPECT_EQ(result.errors.size(), 3u * 4u * 4u);
    for (const LayerError& e : result.errors)
      EXPECT_TRUE(ErrorBound{}.allows(e.errors)) << e.recipe << " " << e.layer << ": " << e.errors.y;
    for (const LayerTimes& layer : result.layers) {
      EXPECT_GT(layer.high_precision, 0);
      for (const RecipeTime& time : layer.recipes) EXPECT_GT(time.milliseconds, 0) << time.recipe;
    }
    EXPECT_GE(result.candidates.size(), 4u);
    EXPECT_EQ(result.choice.name, fastest(result.candidates).recipe);
    left.push_back(Allocator::of(kGpu).stats().current);
  }
  EXPECT_EQ(left.back(), left.front());
}

// The same errors on the CPU, which emulates: operands are cast to the same bits.
TEST(CudaProbe, ErrorsMatchEmulation) {
  const TinyRun tiny;
  const RunConfig config = tiny.config("run", kWide);
  const ProbeResult gpu = run_probe(config, kGpu), cpu = run_probe(config, Device{});
  ASSERT_EQ(gpu.errors.size(), cpu.errors.size());
  const auto sorted = [](std::vector<LayerError> errors) {
    std::ranges::sort(errors, {}, [](const LayerError& e) { return std::pair(e.layer, e.recipe); });
    return errors;
  };
  const auto a = sorted(gpu.errors), b = sorted(cpu.errors);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].errors.y, b[i].errors.y, 0.004) << a[i].recipe << " " << a[i].layer;
    EXPECT_NEAR(a[i].errors.dx, b[i].errors.dx, 0.006) << a[i].recipe << " " << a[i].layer;
    EXPECT_NEAR(a[i].errors.dw, b[i].errors.dw, 0.006) << a[i].recipe << " " << a[i].layer;
  }
}

TEST(CudaProbe, AutoTrainsAsItsChoiceAndResumesIt) {
  const TinyRun tiny;
  const bool before = deterministic();
  const Words base = with(kWide, {"--training.deterministic=true", "--lr_schedule.decay_steps=20"});
  const Words ten = with(base, {"--training.steps=10"}), twenty = with(base, {"--training.steps=20"});
  tiny.run(tiny.config("auto", with(ten, {"--recipe.name=auto"})), kGpu);
  tiny.run(tiny.config("auto", with(twenty, {"--recipe.name=auto"})), kGpu);
  const Json recipe = Json::parse_file(tiny.folder("auto") / "recipe.json").at("recipe");
  tiny.run(tiny.config("named", with(twenty, {"--recipe.name=" + recipe.at("name").as_string(),
                                              "--recipe.filter.exclude=" + recipe.at("filter").at("exclude").dump()})),
           kGpu);
  EXPECT_EQ(tiny.losses("auto"), tiny.losses("named"));
  expect_same_tensors(tiny.checkpoint("auto", 20), tiny.checkpoint("named", 20));
  // On a machine without such a GPU the run continues as it was.
  const RunConfig elsewhere = tiny.config("auto", with(twenty, {"--recipe.name=auto"}));
  EXPECT_EQ(resolve_auto_recipe(elsewhere, Device{}).name, recipe.at("name").as_string());
  set_deterministic(before);
}

}  // namespace
}  // namespace quench
