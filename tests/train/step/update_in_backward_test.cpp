// Updates inside the backward pass: the same training as with one update after it, with fewer gradients at a time.

#include <gmock/gmock.h>

#include "tests/train/config/config_testing.h"
#include "tests/train/expect_error.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/plan/estimate.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::TinyRun;
using Options = std::vector<std::string>;

constexpr const char* kInBackward = "--optimizer.update_in_backward=true";

Options with(Options options, const Options& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

TEST(UpdateInBackward, TrainsAsOneUpdateAfterThePass) {
  const TinyRun tiny;
  const std::vector<Options> kinds{
      {},
      {"--model.tie_word_embeddings=false"},
      {"--training.dtype=bf16", "--training.activation_checkpoint=full", "--training.micro_batch_size=4"},
      {"--training.dtype=bf16", "--training.master_dtype=none", "--training.grad_dtype=bf16", "--optimizer.state=bf16",
       "--training.activation_checkpoint=selective"},
      {"--optimizer.name=muon", "--training.ema_decay=0.9"},
      {"--optimizer.name=adamw_8bit", "--model.hidden_size=256", "--training.mlp_tile_tokens=128",
       "--training.activation_checkpoint=full"},
      {"--model.model_type=qwen3_moe", "--model.num_experts=4", "--model.num_experts_per_tok=2",
       "--model.moe_intermediate_size=16", "--training.dtype=bf16"},
      {"--lora.rank=4", "--training.dtype=bf16"},
      {"--recipe.name=qat_int4_weight_only", "--recipe.group_size=16", "--recipe.learned_scales=true"},
      {"--recipe.name=float8_tensorwise", "--recipe.scaling=delayed", "--training.dtype=bf16"},
      {"--training.train=[\"*layers.1.mlp*\",\"model.embed_tokens.weight\"]"},
      {"--optimizer.groups=[{\"match\":[\"*norm.weight\"],\"lr_scale\":0.5}]", "--training.freeze=[\"*.layers.0.*\"]"},
  };
  int number = 0;
  for (const Options& kind : kinds) {
    SCOPED_TRACE(::testing::PrintToString(kind));
    const std::string after = fmt::format("after{}", number), within = fmt::format("within{}", number);
    ++number;
    const Options options = with(kind, {"--training.steps=6", "--training.max_norm=0"});
    (void)tiny.run(tiny.config(after, options));
    (void)tiny.run(tiny.config(within, with(options, {kInBackward})));
    EXPECT_EQ(tiny.losses(within), tiny.losses(after));
    testing::expect_same_tensors(tiny.checkpoint(within, 6), tiny.checkpoint(after, 6));
  }
}

TEST(UpdateInBackward, GradientNormIsThatOfAllLayers) {
  const TinyRun tiny;
  const auto norms = [&](const std::string& name, const Options& more) {
    (void)tiny.run(tiny.config(name, with({"--training.steps=3", "--training.max_norm=0"}, more)));
    std::vector<double> values;
    std::istringstream lines(testing::read_file(tiny.folder(name) / "metrics" / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) values.push_back(Json::parse(line).at("grad_norm").as_double());
    return values;
  };
  const std::vector<double> after = norms("after", {}), within = norms("within", {kInBackward});
  ASSERT_EQ(within.size(), 3U);
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(within[i], after[i], 1e-6 * after[i]);
}

TEST(UpdateInBackward, EstimateHasTheGradientsOfTwoLayersAtMost) {
  const TinyRun tiny;
  const Device planning{DeviceType::meta, 0};
  const Options large{"--model.hidden_size=256",
                      "--model.intermediate_size=1024",
                      "--model.num_hidden_layers=12",
                      "--training.micro_batch_size=1",
                      "--training.global_batch_size=1",
                      "--training.max_norm=0",
                      "--training.activation_checkpoint=full"};
  const RunEstimate after = estimate_run(ResolvedConfig(tiny.config("run", large)), planning),
                    within = estimate_run(ResolvedConfig(tiny.config("run", with(large, {kInBackward}))), planning);
  const double layer = (4 * 256 * 256 + 3 * 256 * 1024) * 4.0;  // about: fewer heads of keys than of queries
  EXPECT_LT(static_cast<double>(within.device.peak), static_cast<double>(after.device.peak) - 8 * layer);
}

// Layers before the one that is not finite in the backward pass are updated: such weights match no step.
TEST(UpdateInBackward, StateOfAStepThatIsNotFiniteIsNotSaved) {
  const TinyRun tiny;
  const auto run = [&](const std::string& name, const Options& more) {
    (void)tiny.run(
        tiny.config(name, with({"--training.max_norm=0", "--lr_schedule.decay_steps=40", kInBackward}, more)));
  };
  const Options diverges{"--optimizer.lr=1000", "--checkpoint.interval=100"};
  for (const std::string policy : {"stop", "rollback"}) {
    run(policy, {"--training.steps=4"});
    testing::expect_error(ErrorCode::nonfinite, policy == "stop" ? "is not saved" : "already rolled back from step",
                          [&] { run(policy, with(diverges, {"--training.on_nonfinite=" + policy})); });
    EXPECT_TRUE(std::filesystem::exists(tiny.checkpoint(policy, 4)));
    for (int step = 5; step <= 40; ++step) EXPECT_FALSE(std::filesystem::exists(tiny.checkpoint(policy, step))) << step;
  }
}

TEST(UpdateInBackward, ContradictionsAreNamedWithTheirKey) {
  const auto refusal = [](const Options& more) {
    return testing::complaint(with(more, {kInBackward, "--model.preset=llama-3-8b"}));
  };
  EXPECT_EQ(refusal({"--training.max_norm=0"}), "");
  EXPECT_THAT(refusal({}), HasSubstr("optimizer.update_in_backward: true, but training.max_norm is 1"));
  EXPECT_THAT(refusal({"--training.max_norm=0", "--training.on_nonfinite=skip"}), HasSubstr("use stop or rollback"));
  EXPECT_THAT(refusal({"--training.max_norm=0", "--optimizer.offload_ratio=0.5"}),
              HasSubstr("set optimizer.offload_streamed to true"));
  EXPECT_THAT(refusal({"--training.max_norm=0", "--parallel.tensor=2"}), HasSubstr("parallel.tensor is 2"));
  EXPECT_THAT(refusal({"--training.max_norm=0", "--parallel.pipeline=2"}), HasSubstr("parallel.pipeline is 2"));
}

}  // namespace
}  // namespace quench
