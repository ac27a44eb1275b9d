// Estimates of runs with a second model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/run/preference_fixture.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model_folder/model_folder.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/plan/estimate.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

using testing::PreferenceRun;
using testing::TinyRun;
using Options = std::vector<std::string>;

// Large enough that segments of 16 MiB do not decide the ratio.
const Options kLarge{"--training.steps=2",           "--checkpoint.enable=false",
                     "--model.hidden_size=512",      "--model.intermediate_size=1536",
                     "--model.num_hidden_layers=4",  "--model.num_attention_heads=8",
                     "--model.num_key_value_heads=4"};

TEST(SecondModelEstimate, OfATeacherIsWhatTheRunReserves) {
  const TinyRun tiny;
  for (const Options& more : std::vector<Options>{{}, {"--distill.hidden.weight=1"}}) {
    Options options = kLarge;
    options.insert(options.end(), {"--distill.ratio=0.5", "--distill.teacher=initial"});
    options.insert(options.end(), more.begin(), more.end());
    const RunConfig config = tiny.config("run" + std::to_string(more.size()), options);
    const RunEstimate estimate = estimate_run(ResolvedConfig(config), Device{});
    EXPECT_NEAR(static_cast<double>(estimate.teacher_bytes), 4.0 * static_cast<double>(estimate.parameters),
                0.01 * 4.0 * static_cast<double>(estimate.parameters));
    EXPECT_EQ(estimate.teacher_logits_bytes, config.training.micro_batch_size * config.data.seq_len * 64 * 4);
    EXPECT_THAT(to_string(estimate), ::testing::HasSubstr("teacher, of these"));
    Allocator& host = Allocator::of(Device{});
    host.trim();
    host.reset_peak();
    const std::int64_t before = host.stats().reserved;
    (void)tiny.run(config);
    const auto measured = static_cast<double>(host.stats().peak_reserved - before);
    EXPECT_NEAR(static_cast<double>(estimate.device.peak_reserved + estimate.data_bytes) / measured, 1.0, 0.05);
  }
}

// The weights of three of four layers, of the embedding and the head are not on the device.
TEST(SecondModelEstimate, OfATeacherInHostMemoryCountsTwoLayers) {
  const TinyRun tiny;
  const Device gpu{DeviceType::meta, 0};
  Options options = kLarge;
  options.insert(options.end(), {"--distill.ratio=0.5", "--distill.teacher=initial"});
  const RunEstimate resident = estimate_run(ResolvedConfig(tiny.config("resident", options)), gpu);
  options.emplace_back("--distill.offload=true");
  const RunConfig config = tiny.config("offloaded", options);
  const RunEstimate offloaded = estimate_run(ResolvedConfig(config), gpu);
  EXPECT_EQ(offloaded.second_model_host_bytes, 4 * offloaded.parameters);
  EXPECT_EQ(offloaded.host_bytes, resident.host_bytes + offloaded.second_model_host_bytes);
  EXPECT_NEAR(static_cast<double>(offloaded.teacher_bytes), 0.5 * static_cast<double>(resident.teacher_bytes),
              0.01 * static_cast<double>(resident.teacher_bytes));
  EXPECT_LT(offloaded.device.peak, resident.device.peak - resident.teacher_bytes / 2);
  EXPECT_THAT(to_string(offloaded), ::testing::HasSubstr("second model's weights"));
  // In a run on the CPU both are the same memory.
  const RunEstimate here = estimate_run(ResolvedConfig(config), Device{});
  EXPECT_EQ(here.host_bytes, 0);
  EXPECT_GE(here.total_bytes, here.device.peak_reserved + here.second_model_host_bytes);
}

TEST(SecondModelEstimate, CountsTheForwardPass) {
  const PreferenceRun tiny;
  const auto flops = [](const RunConfig& config) {
    const RunEstimate e = estimate_run(ResolvedConfig(config), Device{});
    const bool named = to_string(e).find("forward pass of the teacher or reference") != std::string::npos;
    EXPECT_EQ(named, e.second_model_flops_per_token > 0);
    return e.second_model_flops_per_token;
  };
  const RunConfig plain = tiny.config("run");
  const double pass = resolve_model_config(plain.model).training_flops_per_token(plain.data.seq_len) / 3;
  EXPECT_EQ(flops(plain), 0);
  EXPECT_DOUBLE_EQ(flops(tiny.config("run", {"--distill.ratio=0.5", "--distill.teacher=initial"})), pass);
  EXPECT_DOUBLE_EQ(flops(tiny.config("run", {"--distill.ratio=0.5", "--lora.rank=4"})), pass);
  EXPECT_DOUBLE_EQ(flops(tiny.preference_config("run", "dpo", {"--lora.rank=4"})), pass);
  EXPECT_EQ(flops(tiny.preference_config("run", "dpo")), 0) << "computed once, before the first step";
  EXPECT_EQ(flops(tiny.preference_config("run", "simpo", {"--lora.rank=4"})), 0);
  ModelSetup setup = build_model(ResolvedConfig(tiny.config("run", {"--model.num_hidden_layers=5"})), Device{});
  setup.model->initialize(3);
  const auto folder = tiny.folder("deep");
  save_model_folder(*setup.model, {.folder = folder}, {.dtype = DType::f32});
  EXPECT_GT(flops(tiny.config("run", {"--distill.ratio=0.5", "--distill.teacher=" + folder.string()})), 1.5 * pass);
}

TEST(SecondModelEstimate, OfStoredTargetsHasNoTeacher) {
  const TinyRun tiny;
  RunConfig config = tiny.config("run", {"--distill.ratio=0.5", "--distill.teacher=initial"});
  distill_section(config)->targets = tiny.folder("targets").string();
  const RunEstimate estimate = estimate_run(ResolvedConfig(config), Device{});
  EXPECT_EQ(estimate.teacher_bytes, 0);
  EXPECT_EQ(estimate.teacher_logits_bytes, 0);
  EXPECT_EQ(estimate.second_model_flops_per_token, 0);
}

TEST(SecondModelEstimate, OfAReferenceFolderCountsItsWeights) {
  const PreferenceRun tiny;
  const RunConfig config = tiny.preference_config("run", "dpo");
  const RunEstimate own = estimate_run(ResolvedConfig(config), Device{});
  EXPECT_EQ(own.reference_bytes, 0);
  ModelSetup setup = build_model(ResolvedConfig(config), Device{});
  setup.model->initialize(3);
  const auto folder = tiny.folder("reference");
  save_model_folder(*setup.model, {.folder = folder}, {.dtype = DType::f32});
  const RunConfig other = tiny.preference_config("run", "dpo", {"--preference.reference=" + folder.string()});
  const RunEstimate estimate = estimate_run(ResolvedConfig(other), Device{});
  EXPECT_NEAR(static_cast<double>(estimate.reference_bytes), 4.0 * static_cast<double>(estimate.parameters),
              0.02 * 4.0 * static_cast<double>(estimate.parameters));
  EXPECT_EQ(estimate.device.peak, own.device.peak);
  EXPECT_GE(estimate.start_bytes, 2 * estimate.reference_bytes);
  const RunConfig offloaded =
      tiny.preference_config("run", "dpo", {"--preference.reference=" + folder.string(), "--preference.offload=true"});
  const RunEstimate away = estimate_run(ResolvedConfig(offloaded), Device{});
  EXPECT_EQ(away.second_model_host_bytes, 4 * away.parameters);
  EXPECT_LE(away.reference_bytes, estimate.reference_bytes);
}

}  // namespace
}  // namespace quench
