// Runs with delayed scaling.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/metrics/json_lines.h"

namespace quench {
namespace {

using testing::expect_same_tensors;
using testing::TinyRun;

// Layers of both tests' widths are multiples of 16 after padding.
std::vector<std::string> with(const std::vector<std::string>& more) {
  std::vector<std::string> all{"--recipe.name=float8_tensorwise", "--training.dtype=bf16"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<std::string> delayed(const std::vector<std::string>& more) {
  std::vector<std::string> all = with(more);
  all.emplace_back("--recipe.scaling=delayed");
  return all;
}

double loss_at(const std::vector<std::string>& losses, std::size_t step) {
  const std::string& text = losses.at(step - 1);
  return std::stod(text.substr(text.find(':') + 1));
}

TEST(DelayedScalingRun, TheFirstStepIsThatOfDynamicScalingAndLaterOnesAreClose) {
  const TinyRun tiny;
  tiny.run(tiny.config("dynamic", with({"--checkpoint.interval=1"})));
  tiny.run(tiny.config("delayed", delayed({"--checkpoint.interval=1"})));
  const auto wanted = tiny.losses("dynamic"), got = tiny.losses("delayed");
  EXPECT_EQ(got[0], wanted[0]);
  EXPECT_NE(got, wanted);
  CheckpointReader a(tiny.checkpoint("dynamic", 1)), b(tiny.checkpoint("delayed", 1));
  for (const TensorRecord& record : a.manifest().tensors)
    EXPECT_EQ(testing::tensor_bytes(a, record), testing::tensor_bytes(b, b.at(record.name))) << record.name;
  for (const std::size_t step : {2u, 10u, 20u, 40u})
    EXPECT_NEAR(loss_at(got, step), loss_at(wanted, step), 0.03 * loss_at(wanted, step)) << step;
}

TEST(DelayedScalingRun, ResumeIsExact) {
  const TinyRun tiny;
  for (const std::string history : {"1", "5", "16"}) {
    SCOPED_TRACE(history);
    const std::vector<std::string> full =
        delayed({"--recipe.amax_history=" + history, "--recipe.amax_margin=1", "--training.steps=24",
                 "--lr_schedule.decay_steps=20", "--checkpoint.interval=6"});
    std::vector<std::string> half = full;
    half.emplace_back("--training.steps=12");
    const std::string whole = "whole" + history, parts = "parts" + history;
    tiny.run(tiny.config(whole, full));
    tiny.run(tiny.config(parts, half));
    tiny.run(tiny.config(parts, full));
    EXPECT_EQ(tiny.losses(parts), tiny.losses(whole));
    expect_same_tensors(tiny.checkpoint(parts, 24), tiny.checkpoint(whole, 24));
  }
}

TEST(DelayedScalingRun, CheckpointsHoldTheHistoryOfEveryLayer) {
  const TinyRun tiny;
  tiny.run(tiny.config("run", delayed({"--training.steps=3", "--recipe.amax_history=4"})));
  CheckpointReader reader(tiny.checkpoint("run", 3));
  int layers = 0;
  for (const TensorRecord& record : reader.manifest().tensors) {
    if (!record.name.starts_with("recipe.amax_history.")) continue;
    ++layers;
    ASSERT_EQ(record.shape, (Shape{2, 4})) << record.name;
    const Tensor history = Tensor::empty(record.shape, record.dtype);
    reader.read(record.name, history);
    for (int operand = 0; operand < 2; ++operand)
      for (int step = 0; step < 4; ++step)
        EXPECT_EQ(history.data<float>()[operand * 4 + step] > 0, step < 3) << record.name << " " << operand;
  }
  EXPECT_GE(layers, 4);
}

// A dynamic run's checkpoint begins with empty histories; a delayed run's resumes dynamically.
TEST(DelayedScalingRun, ScalingMayChangeOnResumeIfAllowed) {
  const TinyRun tiny;
  const std::vector<std::string> allow{"--checkpoint.allow_changes=recipe.scaling,recipe.amax_history",
                                       "--lr_schedule.decay_steps=10"};
  const auto steps = [&](const char* count, const std::vector<std::string>& base) {
    std::vector<std::string> all = base;
    all.insert(all.end(), allow.begin(), allow.end());
    all.push_back(std::string("--training.steps=") + count);
    return all;
  };
  for (const std::string name : {"a", "b"}) tiny.run(tiny.config(name, steps("4", with({}))));
  tiny.run(tiny.config("a", steps("5", delayed({}))));
  tiny.run(tiny.config("b", steps("5", with({}))));
  EXPECT_EQ(tiny.losses("a"), tiny.losses("b")) << "a step without history is dynamic";
  tiny.run(tiny.config("a", steps("7", with({}))));
  tiny.run(tiny.config("b", steps("7", with({}))));
  EXPECT_EQ(tiny.losses("a"), tiny.losses("b"));
  // The newest steps of a longer history.
  tiny.run(tiny.config("c", steps("6", delayed({"--recipe.amax_history=5"}))));
  tiny.run(tiny.config("c", steps("7", delayed({"--recipe.amax_history=2"}))));
  tiny.run(tiny.config("c", steps("8", delayed({"--recipe.amax_history=9"}))));
  EXPECT_EQ(tiny.losses("c").size(), 8u);
}

TEST(DelayedScalingRun, EveryRecomputeLevelTrainsTheSame) {
  const TinyRun tiny;
  for (const std::string level : {"none", "selective", "full"}) {
    tiny.run(tiny.config(level, {"--recipe.name=float8_tensorwise", "--recipe.scaling=delayed", "--training.steps=6",
                                 "--training.activation_checkpoint=" + level}));
    EXPECT_EQ(tiny.losses(level), tiny.losses("none"));
    expect_same_tensors(tiny.checkpoint(level, 6), tiny.checkpoint("none", 6));
  }
  tiny.run(tiny.config("mlp", {"--recipe.name=float8_tensorwise", "--recipe.scaling=delayed", "--training.steps=6",
                               "--training.activation_checkpoint=selective", "--training.recompute_mlp_layers=2"}));
  EXPECT_EQ(tiny.losses("mlp"), tiny.losses("none"));
  expect_same_tensors(tiny.checkpoint("mlp", 6), tiny.checkpoint("none", 6));
}

TEST(DelayedScalingRun, EvaluationChangesNothing) {
  const TinyRun tiny;
  const std::vector<std::string> base = delayed({"--training.steps=6"});
  tiny.run(tiny.config("plain", base));
  std::vector<std::string> evaluated = base;
  evaluated.push_back("--data.validation=" + (tiny.folder("") / "train.bin").string());
  evaluated.emplace_back("--evaluation.interval=2");
  evaluated.emplace_back("--evaluation.steps=2");
  tiny.run(tiny.config("evaluated", evaluated));
  EXPECT_EQ(tiny.losses("evaluated"), tiny.losses("plain"));
  expect_same_tensors(tiny.checkpoint("evaluated", 6), tiny.checkpoint("plain", 6));
}

TEST(DelayedScalingRun, HealthIsMeasuredUnderTheStoredScales) {
  const TinyRun tiny;
  const auto run = [&](const std::string& name, const std::string& margin) {
    tiny.run(tiny.config(name, delayed({"--training.steps=8", "--optimizer.lr=0.05", "--recipe.amax_history=1",
                                        "--metrics.health_every=1", "--recipe.amax_margin=" + margin})));
    double saturated = 0;
    (void)read_json_lines(tiny.folder(name) / "metrics" / "health.jsonl", [&](const Json& record, std::int64_t) {
      for (const auto& [layer, operands] : record.at("layers").as_object())
        for (const auto& [operand, values] : operands.as_object()) {
          EXPECT_FALSE(values.at("nonfinite").as_bool());
          saturated += values.at("saturated").as_double();
        }
    });
    return saturated;
  };
  EXPECT_GT(run("tight", "0"), 0) << "an amax above the last step's";
  EXPECT_EQ(run("wide", "8"), 0);
  tiny.run(tiny.config("off", delayed({"--training.steps=8", "--optimizer.lr=0.05", "--recipe.amax_history=1",
                                       "--metrics.health_every=0"})));
  EXPECT_EQ(tiny.losses("tight"), tiny.losses("off"));
}

// Values that only their codes' consumer reads are not written, unless they are measured.
TEST(DelayedScalingRun, ValuesLeftOutChangeNothing) {
  const TinyRun tiny;
  const std::vector<std::vector<std::string>> runs = {
      {},
      {"--training.activation_checkpoint=selective"},
      {"--training.activation_checkpoint=full"},
      {"--training.activation_checkpoint=selective", "--training.recompute_mlp_layers=1"},
      {"--recipe.high_precision_gemms=[\"wgrad\"]"},
      {"--recipe.high_precision_gemms=[\"dgrad\"]"},
      {"--recipe.high_precision_gemms=[\"forward\"]"},
      {"--recipe.gradient_rounding=stochastic"},
      {"--recipe.keep_weights=true"},
      {"--training.freeze=[\"model.layers.0.*\", \"model.embed_tokens.*\"]"},
      {"--lora.rank=2"},
      {"--lora.rank=2", "--training.activation_checkpoint=selective"},
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string number = std::to_string(i);
    for (const std::string every : {"0", "1"}) {
      std::vector<std::string> options = delayed(runs[i]);
      options.emplace_back("--training.steps=5");
      options.push_back("--metrics.health_every=" + every);
      tiny.run(tiny.config(number + "-" + every, options));
    }
    EXPECT_EQ(tiny.losses(number + "-0"), tiny.losses(number + "-1"));
    expect_same_tensors(tiny.checkpoint(number + "-0", 5), tiny.checkpoint(number + "-1", 5));
  }
}

TEST(DelayedScalingRun, TheTailInHighPrecisionKeepsTheHistory) {
  const TinyRun tiny;
  tiny.run(tiny.config("run", delayed({"--training.steps=6", "--recipe.start_step=2", "--recipe.stop_step=4",
                                       "--checkpoint.interval=2"})));
  CheckpointReader before(tiny.checkpoint("run", 2)), at(tiny.checkpoint("run", 4)), after(tiny.checkpoint("run", 6));
  for (const TensorRecord& record : at.manifest().tensors) {
    if (!record.name.starts_with("recipe.amax_history.")) continue;
    EXPECT_EQ(testing::tensor_bytes(after, record), testing::tensor_bytes(at, record)) << record.name;
    EXPECT_NE(testing::tensor_bytes(before, record), testing::tensor_bytes(at, record)) << record.name;
  }
}

}  // namespace
}  // namespace quench
