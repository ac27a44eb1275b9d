// training.master_split: master weights as bf16 parameters and their missing bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/ops/optimizer/split_weights.h"
#include "tests/train/config/config_testing.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/plan/estimate.h"
#include "train/session/model_setup.h"
#include "train/session/optimizer_setup.h"
#include "train/step/training_state.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::TinyRun;
using Options = std::vector<std::string>;

constexpr const char* kSplit = "--training.master_split=true";

Options together(Options options, const Options& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

// Values of "step:loss" lines.
std::vector<double> values(const std::vector<std::string>& lines) {
  std::vector<double> all;
  for (const std::string& line : lines) all.push_back(std::stod(line.substr(line.find(':') + 1)));
  return all;
}

// Runs in which other features own or wrap the trained parameters or their optimizer.
const std::vector<Options> kFeatures{
    {},
    {"--training.ema_decay=0.9"},
    {"--training.ema_decay=0.9", "--training.ema_dtype=bf16", "--optimizer.state=bf16"},
    {"--training.freeze=model.layers.0.*,model.embed_tokens.weight"},
    {"--lora.rank=4", "--lora.modules_to_save=norm"},
    {"--lora.rank=4", "--lora.base=nf4", "--lora.dora=true", "--training.ema_decay=0.9"},
    {"--lora.rank=4", "--lora.trainable_token_indices=3,1,60"},
    {R"(--optimizer.groups=[{"match": ["*norm.weight"], "lr_scale": 0.5}])"},
    {"--recipe.name=qat_int4_weight_only", "--recipe.group_size=16", "--recipe.learned_scales=true"},
    {"--recipe.name=float8_tensorwise", "--recipe.scaling=delayed", "--recipe.keep_weights=true"}};

// f32 weights of each trained parameter: f32 parameters, master weights, or split ones joined.
std::map<std::string, Tensor> f32_weights(const RunConfig& config, const std::filesystem::path& checkpoint) {
  const ModelSetup setup = build_model(ResolvedConfig(config), Device{});
  fill_model(*setup.model, config);
  const auto optimizer = make_optimizer(*setup.model, config);
  CheckpointReader reader(checkpoint);
  restore_training_tensors(reader, *setup.model, *optimizer);
  std::map<std::string, Tensor> weights;
  for (const nn::Parameter* p : optimizer->parameters()) weights.emplace(p->name, p->variable.value());
  for (const auto& state : optimizer->state()) {
    const nn::Parameter& p = *state.parameter;
    if (state.name == nn::Optimizer::master_name(p)) weights[p.name] = state.tensor;
    if (state.name == nn::Optimizer::master_low_name(p))
      weights[p.name] = join_weights(p.variable.value(), state.tensor);
  }
  return weights;
}

// The same 32 bits in each layout; a tie above an even bf16 is stored as the f32 below it.
void expect_split_and_joined(const Options& feature) {
  constexpr int kSteps = 6;
  const TinyRun tiny;
  const auto config = [&](const std::string& dtype, bool split, int parts) {
    return tiny.config(
        "run", together(feature, {"--training.dtype=" + dtype, fmt::format("--training.master_split={}", split),
                                  fmt::format("--training.steps={}", parts * kSteps), "--lr_schedule.decay_steps=24",
                                  "--checkpoint.interval=0",
                                  "--checkpoint.allow_changes=training.dtype,training.master_split"}));
  };
  tiny.run(config("bf16", false, 1));
  EXPECT_EQ(tiny.run(config("bf16", true, 2)).step, 2 * kSteps);
  EXPECT_EQ(tiny.run(config("bf16", false, 3)).step, 3 * kSteps);
  for (const int part : {1, 2, 3}) {
    const std::filesystem::path checkpoint = tiny.checkpoint("run", part * kSteps);
    const auto whole = f32_weights(config("bf16", false, 4), checkpoint),
               split = f32_weights(config("bf16", true, 4), checkpoint),
               wide = f32_weights(config("f32", false, 4), checkpoint);
    ASSERT_FALSE(whole.empty());
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
    EXPECT_EQ(part == 2 ? ties : 0, 0) << "saved by the split run";
  }
}

TEST(SplitMasterWeights, MayBeSplitAndJoinedOnResume) {
  for (const Options& feature : {kFeatures[0], kFeatures[1], kFeatures[3], kFeatures[4]}) {
    SCOPED_TRACE(::testing::PrintToString(feature));
    expect_split_and_joined(feature);
  }
}

TEST(SplitMasterWeights, TrainLikeSeparateOnes) {
  for (const Options& feature : kFeatures) {
    SCOPED_TRACE(::testing::PrintToString(feature));
    const TinyRun tiny;
    const Options base = together(feature, {"--training.dtype=bf16", "--checkpoint.interval=0", "--training.steps=12"});
    tiny.run(tiny.config("separate", base));
    tiny.run(tiny.config("split", together(base, {kSplit})));
    const std::vector<double> separate = values(tiny.losses("separate")), split = values(tiny.losses("split"));
    ASSERT_EQ(separate.size(), split.size());
    for (std::size_t i = 0; i < split.size(); ++i) EXPECT_NEAR(split[i], separate[i], 1e-3) << i;
    CheckpointReader reader(tiny.checkpoint("split", 12));
    // Learned scales have updates, and master weights, of their own.
    const auto stored = [&](std::string_view prefix) {
      return std::ranges::count_if(reader.manifest().tensors, [&](const TensorRecord& tensor) {
        return tensor.name.starts_with(prefix) && !tensor.name.ends_with(".weight_scale");
      });
    };
    EXPECT_GT(stored("optimizer.master_low."), 0);
    EXPECT_EQ(stored("optimizer.master."), 0);
  }
}

TEST(SplitMasterWeights, ResumeExactlyWithOtherFeatures) {
  for (const Options& feature : kFeatures) {
    SCOPED_TRACE(::testing::PrintToString(feature));
    const TinyRun tiny;
    const auto run = [&](const std::string& name, int steps) {
      tiny.run(tiny.config(
          name, together(feature, {"--training.dtype=bf16", kSplit, "--checkpoint.interval=0",
                                   fmt::format("--training.steps={}", steps), "--lr_schedule.decay_steps=6"})));
    };
    run("whole", 6);
    run("parts", 3);
    run("parts", 6);
    EXPECT_EQ(tiny.losses("parts"), tiny.losses("whole"));
    testing::expect_same_tensors(tiny.checkpoint("parts", 6), tiny.checkpoint("whole", 6));
  }
}

// The bits after the repeated steps are those of the first time: all 32 come back from the checkpoint.
TEST(SplitMasterWeights, RollBackToTheCheckpoint) {
  for (const Options& feature : {kFeatures[0], kFeatures[1]}) {
    SCOPED_TRACE(::testing::PrintToString(feature));
    const TinyRun tiny;
    const auto fails = [&](const std::string& name, int interval, const std::string& policy) {
      const RunConfig config = tiny.config(
          name,
          together(feature, {"--training.dtype=bf16", kSplit, "--optimizer.lr=25", "--training.max_norm=0",
                             fmt::format("--checkpoint.interval={}", interval), "--training.on_nonfinite=" + policy}));
      EXPECT_THROW(tiny.run(config), Error);
    };
    fails("once", 0, "stop");
    const std::vector<std::string> losses = tiny.losses("once");
    const int last = std::stoi(losses.back()) - 1;
    ASSERT_GE(last, 2);
    const int saved = last - 1;
    fails("twice", saved, "rollback");
    EXPECT_THAT(testing::read_file(tiny.folder("twice") / "metrics" / "events.jsonl"), HasSubstr("rollback"));
    EXPECT_EQ(tiny.losses("twice"), losses);
    testing::expect_same_tensors(tiny.checkpoint("twice", last), tiny.checkpoint("once", last));
  }
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
