// training.master_split: master weights as bf16 parameters and their missing bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/ops/optimizer/split_weights.h"
#include "tests/train/config/config_testing.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/plan/estimate.h"
#include "train/setup/model_setup.h"
#include "train/setup/optimizer_setup.h"
#include "train/step/training_state.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::TinyRun;

// f32 weights of each parameter: f32 parameters, master weights, or split ones joined.
std::map<std::string, Tensor> f32_weights(const RunConfig& config, const std::filesystem::path& checkpoint) {
  const ModelSetup setup = build_model(ResolvedConfig(config), Device{});
  fill_model(*setup.model, config);
  const auto optimizer = make_optimizer(*setup.model, config);
  CheckpointReader reader(checkpoint);
  restore_training_tensors(reader, *setup.model, *optimizer);
  std::map<std::string, Tensor> weights;
  for (const nn::Parameter* p : setup.model->parameters()) weights.emplace(p->name, p->variable.value());
  for (const auto& state : optimizer->state()) {
    const nn::Parameter& p = *state.parameter;
    if (state.name == nn::Optimizer::master_name(p)) weights[p.name] = state.tensor;
    if (state.name == nn::Optimizer::master_low_name(p))
      weights[p.name] = join_weights(p.variable.value(), state.tensor);
  }
  return weights;
}

// The same 32 bits in each layout; a tie above an even bf16 is stored as the f32 below it.
TEST(SplitMasterWeights, MayBeSplitAndJoinedOnResume) {
  const TinyRun tiny;
  const auto config = [&](const std::string& dtype, bool split, int steps) {
    return tiny.config("run", {"--training.dtype=" + dtype, fmt::format("--training.master_split={}", split),
                               fmt::format("--training.steps={}", steps), "--lr_schedule.decay_steps=36",
                               "--checkpoint.allow_changes=training.dtype,training.master_split"});
  };
  tiny.run(config("bf16", false, 10));
  EXPECT_EQ(tiny.run(config("bf16", true, 20)).step, 20);
  EXPECT_EQ(tiny.run(config("bf16", false, 30)).step, 30);
  for (const int step : {10, 20, 30}) {
    const std::filesystem::path checkpoint = tiny.checkpoint("run", step);
    const auto whole = f32_weights(config("bf16", false, 40), checkpoint),
               split = f32_weights(config("bf16", true, 40), checkpoint),
               wide = f32_weights(config("f32", false, 40), checkpoint);
    std::int64_t ties = 0, elements = 0;
    for (const auto& [name, weight] : whole) {
      ASSERT_EQ(weight.dtype(), DType::f32);
      elements += weight.numel();
      for (std::int64_t i = 0; i < weight.numel(); ++i) {
        const auto bits = [i](const Tensor& t) { return bit_cast<std::uint32_t>(t.data<float>()[i]); };
        ASSERT_EQ(bits(wide.at(name)), bits(weight)) << name;
        const bool tie = (bits(weight) & 0x1FFFFu) == 0x8000u;
        ties += tie ? 1 : 0;
        ASSERT_EQ(bits(split.at(name)), bits(weight) - (tie ? 1 : 0)) << name;
      }
    }
    EXPECT_LT(ties * 1000, elements);
    EXPECT_EQ(step == 20 ? ties : 0, 0) << "saved by the split run";
  }
}

TEST(SplitMasterWeights, TrainLikeSeparateOnes) {
  const TinyRun tiny;
  tiny.run(tiny.config("separate", {"--training.dtype=bf16"}));
  tiny.run(tiny.config("split", {"--training.dtype=bf16", "--training.master_split=true"}));
  const std::vector<std::string> separate = tiny.losses("separate"), split = tiny.losses("split");
  ASSERT_EQ(separate.size(), split.size());
  const auto loss = [](const std::string& record) { return std::stod(record.substr(record.find(':') + 1)); };
  for (std::size_t i = 0; i < split.size(); ++i) EXPECT_NEAR(loss(split[i]), loss(separate[i]), 1e-3) << split[i];
}

TEST(SplitMasterWeights, TakeHalfTheMemory) {
  const TinyRun tiny;
  const auto optimizer_bytes = [&](const char* split) {
    const RunConfig config =
        tiny.config("run", {"--training.dtype=bf16", std::string("--training.master_split=") + split,
                            "--model.hidden_size=512", "--model.intermediate_size=1408"});
    const RunEstimate e = estimate_run(ResolvedConfig(config), Device{});
    return std::pair{e.device.peak_by_category[static_cast<std::size_t>(MemoryCategory::optimizer)], e.parameters};
  };
  const auto [separate, parameters] = optimizer_bytes("false");
  EXPECT_NEAR(static_cast<double>(separate - optimizer_bytes("true").first), 2.0 * static_cast<double>(parameters),
              4096);
}

TEST(SplitMasterWeights, NeedMasterWeightsOfAdamW) {
  const std::string split = "--training.master_split=true";
  EXPECT_THAT(testing::complaint({split, "--training.dtype=f32"}),
              HasSubstr("training.master_split: true, but there are no master weights"));
  EXPECT_THAT(testing::complaint({split, "--training.dtype=bf16", "--training.master_dtype=none"}),
              HasSubstr("training.master_split: true, but there are no master weights"));
  EXPECT_THAT(testing::complaint({split, "--training.dtype=bf16", "--optimizer.name=muon"}),
              HasSubstr("training.master_split: true, but optimizer.name is muon; only adamw"));
}

}  // namespace
}  // namespace quench
