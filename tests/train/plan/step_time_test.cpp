// Predicted and measured step times (docs/guide/scaling.md, docs/lab/2026-11-20-performance.md).

#include "train/plan/step_time.h"

#include <gtest/gtest.h>

#include "tests/testing.h"
#include "train/check/load.h"
#include "train/metrics/peak_flops.h"
#include "train/plan/estimate.h"
#include "train/session/parallel_setup.h"

namespace quench {
namespace {

constexpr Device kGpu{DeviceType::cuda, 0};

RunEstimate planned(const std::string& config, std::int64_t ranks, const std::vector<std::string>& overrides,
                    const Cluster& cluster = {}) {
  RunConfig run = load_run_config(config, overrides, {.data = false, .files = false});
  set_ranks(run, ranks);
  return estimate_run(ResolvedConfig(run), kGpu, cluster);
}

std::string workload(const std::string& name) {
  return (testing::source_dir() / "bench" / "workloads" / (name + ".json")).string();
}

double tokens_per_second(const RunEstimate& e) {
  return static_cast<double>(e.tokens_per_step) / static_cast<double>(e.ranks) / e.time->total();
}

// Measured tokens/s of a GPU.
struct MeasuredRun {
  const char* workload;
  const char* recipe;
  std::int64_t ranks;
  double measured;
  const char* gpu = "H200";
};

class StepTimeOf : public ::testing::TestWithParam<MeasuredRun> {};

TEST_P(StepTimeOf, MeasuredRunsIsPredictedWithinATenth) {
  const MeasuredRun& run = GetParam();
  std::vector<std::string> more = {std::string("--recipe.name=") + run.recipe};
  if (run.ranks > 1)
    for (const char* word : {"--training.global_batch_size=4", "--training.master_dtype=f32", "--optimizer.state=f32",
                             "--training.grad_dtype=f32"})
      more.emplace_back(word);
  const RunEstimate e = planned(workload(run.workload), run.ranks, more, {.gpu = &require_planned_gpu(run.gpu)});
  ASSERT_TRUE(e.time.has_value());
  EXPECT_NEAR(tokens_per_second(e), run.measured, 0.1 * run.measured);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, StepTimeOf,
    ::testing::Values(
        MeasuredRun{"8b-l8", "bf16", 1, 39'065}, MeasuredRun{"8b-l8", "bf16", 2, 34'732},
        MeasuredRun{"8b-l8", "float8_tensorwise", 1, 51'486}, MeasuredRun{"8b-l8", "float8_tensorwise", 2, 45'280},
        MeasuredRun{"8b-l8", "float8_rowwise", 2, 44'885}, MeasuredRun{"8b", "bf16", 1, 11'097},
        MeasuredRun{"1b", "bf16", 1, 67'799}, MeasuredRun{"1b", "float8_tensorwise", 1, 84'087},
        MeasuredRun{"8b-l8", "bf16", 1, 38'772, "H100"}, MeasuredRun{"8b-l8", "float8_rowwise", 1, 48'197, "H100"},
        MeasuredRun{"1b", "bf16", 1, 65'069, "H100"}, MeasuredRun{"1b", "float8_tensorwise", 1, 78'868, "H100"},
        MeasuredRun{"8b-l8", "bf16", 2, 35'864, "H100"}, MeasuredRun{"8b-l8", "float8_rowwise", 2, 44'393, "H100"}));

// Longer sequences, axes of the mesh, experts, four GPUs: docs/guide/plan.md has the errors.
TEST(StepTime, OtherMeasuredRunsArePredictedWithinATenth) {
  const auto expect = [](const std::string& name, const char* recipe, std::int64_t ranks, double measured,
                         std::vector<std::string> more) {
    more.emplace_back(std::string("--recipe.name=") + recipe);
    const RunEstimate e = planned(workload(name), ranks, more);
    EXPECT_NEAR(tokens_per_second(e), measured, measured / 10) << name << " " << recipe << " " << more.front();
  };
  const std::vector<std::string> f32{"--training.master_dtype=f32", "--optimizer.state=f32",
                                     "--training.grad_dtype=f32", "--optimizer.offload_ratio=0"};
  const auto joined = [](std::vector<std::string> all, const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::vector<std::string> eight = joined({"--training.global_batch_size=8"}, f32),
                                 four = joined({"--training.global_batch_size=4"}, f32);
  expect("8b-l8", "bf16", 4, 36'517, eight);
  expect("8b-l8", "float8_tensorwise", 4, 48'262, eight);
  expect("8b", "bf16", 4, 10'351, four);
  expect("8b", "float8_rowwise", 4, 14'081, four);
  for (const char* name : {"qwen3moe-l8", "mixtral-l4"}) {
    const bool narrow = std::string_view(name) == "qwen3moe-l8";
    expect(name, "bf16", 1, narrow ? 74'300 : 50'058, {"--training.steps=1"});
    expect(name, "float8_rowwise", 1, narrow ? 77'331 : 68'995, {"--training.steps=1"});
  }
  expect("8b-l8", "bf16", 2, 34'973, {"--parallel.tensor=2"});
  expect("8b-l8", "float8_rowwise", 2, 44'121, {"--parallel.tensor=2"});
  const auto sequence = [&](const char* length, const std::vector<std::string>& more) {
    return joined({std::string("--data.seq_len=") + length, std::string("--model.max_position_embeddings=") + length,
                   "--training.micro_batch_size=1", "--training.global_batch_size=1"},
                  more);
  };
  expect("8b-l8", "bf16", 1, 19'690, sequence("65536", {}));
  expect("8b-l8", "bf16", 2, 18'535, sequence("65536", {"--parallel.context=2"}));
  expect("8b-l8", "bf16", 1, 10'124, sequence("131072", {"--training.activation_checkpoint=full"}));
  expect("8b-l8", "bf16", 2, 9'684,
         sequence("131072", {"--parallel.context=2", "--training.activation_checkpoint=full"}));
  const std::vector<std::string> qlora{"--lora.rank=16",
                                       "--lora.alpha=32",
                                       "--lora.base=nf4",
                                       "--unset=training.master_dtype",
                                       "--unset=training.grad_dtype",
                                       "--unset=optimizer.state",
                                       "--unset=optimizer.offload_ratio",
                                       "--unset=optimizer.stochastic_rounding",
                                       "--training.activation_checkpoint=full",
                                       "--training.mlp_tile_tokens=8192",
                                       "--training.offload_layers=32",
                                       "--training.keep_attention_layers=32"};
  expect("8b", "bf16", 1, 7'415, sequence("32768", qlora));
  expect("8b", "bf16", 1, 3'322, sequence("131072", qlora));
}

// The share of float8 is that of the model, whatever part of it a process has.
TEST(StepTime, SlicesAndStagesHaveTheFlopsOfTheWholeModel) {
  const std::vector<std::string> rowwise{"--recipe.name=float8_rowwise", "--training.global_batch_size=4",
                                         "--training.offload_layers=0"};
  const TrainingFlops whole = planned(workload("8b-l8"), 1, rowwise).flops_per_token;
  for (const char* axis : {"--parallel.tensor=2", "--parallel.pipeline=2"}) {
    std::vector<std::string> more = rowwise;
    more.emplace_back(axis);
    const TrainingFlops part = planned(workload("8b-l8"), 2, more).flops_per_token;
    EXPECT_DOUBLE_EQ(part.float8, whole.float8) << axis;
    EXPECT_DOUBLE_EQ(part.high_precision, whole.high_precision) << axis;
  }
}

// Eight micro-batches, of which a brief simulation runs three.
TEST(StepTime, ABriefSimulationHasTheTrafficOfAWholeOne) {
  for (const char* transfers : {"--parallel.reduce_every_micro_batch=true", "--parallel.reduce_every_micro_batch=false",
                                "--parallel.reshard_after_forward=false"}) {
    RunConfig run =
        load_run_config(workload("1b"), std::vector<std::string>{"--training.global_batch_size=128", transfers},
                        {.data = false, .files = false});
    run.parallel.replicate = 2;
    set_ranks(run, 4);
    const RunEstimate whole = estimate_run(ResolvedConfig(run), kGpu),
                      brief = estimate_run(ResolvedConfig(run), kGpu, {}, {.brief = true});
    EXPECT_EQ(brief.gather_bytes, whole.gather_bytes) << transfers;
    EXPECT_EQ(brief.reduce_bytes, whole.reduce_bytes) << transfers;
    EXPECT_EQ(brief.total_bytes, whole.total_bytes) << transfers;
    EXPECT_NEAR(brief.time->total(), whole.time->total(), 1e-5 * whole.time->total()) << transfers;
  }
}

TEST(StepTime, EveryPlannedGpuHasRates) {
  for (const PlannedGpu& gpu : planned_gpus()) {
    const DeviceRates rates = planned_rates(gpu);
    EXPECT_GT(rates.bf16_flops, 0) << gpu.title();
    EXPECT_GT(rates.memory_bytes, 0) << gpu.title();
    EXPECT_FALSE(rates.source.empty()) << gpu.title();
    EXPECT_EQ(rates.float8_flops > 0, float8_peak_flops(gpu.name).has_value()) << gpu.title();
  }
}

// Copies that fit next to computation cost nothing; beyond it, their difference.
TEST(StepTime, CopiesToTheHostAreHiddenByComputation) {
  const DeviceRates rates = *device_rates("NVIDIA H200");
  StepWork work;
  work.flops_per_token.high_precision = rates.bf16_flops;
  work.tokens = 3;  // three seconds: one of them forward
  work.kept_bytes = 40e9;
  EXPECT_EQ(predict_step(rates, {}, work, {}).host_copies, 0);
  work.kept_bytes = 75e9;
  EXPECT_NEAR(predict_step(rates, {}, work, {}).host_copies, 0.5, 1e-9);
  work.micro_batches = 3;  // a third of a second forward in each
  work.kept_bytes = 25e9;
  EXPECT_NEAR(predict_step(rates, {}, work, {}).host_copies, 3 * (0.5 - 1.0 / 3), 1e-9);
}

TEST(StepTime, SlowNetworksShow) {
  const std::vector<std::string> more = {"--training.global_batch_size=32"};
  const RunEstimate fast = planned(workload("8b-l8"), 16, more),
                    slow = planned(workload("8b-l8"), 16, more, {.network_bytes = 5e9});
  EXPECT_GT(slow.time->exposed, 4 * fast.time->exposed);
  EXPECT_GT(slow.time->total(), 2 * fast.time->total());
  // On one node the network does not matter.
  const RunEstimate node = planned(workload("8b-l8"), 16, more, {.node_size = 16, .network_bytes = 5e9});
  EXPECT_LT(node.time->total(), fast.time->total());
}

TEST(StepTime, TransfersInPartHiddenByComputation) {
  const DeviceRates* rates = device_rates("NVIDIA H200");
  ASSERT_NE(rates, nullptr);
  EXPECT_EQ(device_rates("NVIDIA H200 NVL"), nullptr);
  EXPECT_EQ(device_rates("NVIDIA A100-SXM4-80GB"), nullptr);
  StepWork work;
  work.flops_per_token.high_precision = rates->bf16_flops;  // a second a token
  work.tokens = 1;
  const Cluster cluster{.network_bytes = 1e9, .hop_seconds = 0};
  const auto with = [&](double gigabytes) {
    return predict_step(*rates, cluster, work,
                        {{.ranks = 16, .calls = 1, .bytes = static_cast<std::int64_t>(gigabytes * 1e9)}});
  };
  EXPECT_DOUBLE_EQ(predict_step(*rates, cluster, work, {}).total(), 1);
  EXPECT_LT(with(0.5).exposed, 1e-9);  // half a second next to a second
  EXPECT_NEAR(with(3).total(), 3, 1e-6);
}

// An NF4 element takes half a byte, and its block's scale; it becomes two bytes in bf16 or one in e4m3, twice in a
// micro-batch.
TEST(StepTimeOfAQuantizedBase, HasThePassesOverIt) {
  const auto with = [](const char* base, const char* recipe, std::vector<std::string> more = {}) {
    more.insert(more.end(),
                {std::string("--recipe.name=") + recipe, std::string("--lora.base=") + base, "--lora.rank=16",
                 "--training.activation_checkpoint=none", "--training.global_batch_size=4"});
    return planned(workload("8b-l8"), 1, more);
  };
  const double elements = 8.0 * (4096 * 6144 + 4096 * 4096 + 3.0 * 4096 * 14336);
  const RunEstimate dense = with("dense", "bf16"), nf4 = with("nf4", "bf16"),
                    dense8 = with("dense", "float8_tensorwise"), nf48 = with("nf4", "float8_tensorwise");
  ASSERT_TRUE(dense.time && nf4.time && dense8.time && nf48.time);
  const double bytes = 2 * 2 * elements;  // bytes of two micro-batches
  EXPECT_NEAR((nf4.time->passes - dense.time->passes) * 3.85e12, bytes * (2.5 + 1.0 / 64), 1e-3 * bytes);
  EXPECT_NEAR((nf48.time->passes - dense8.time->passes) * 3.85e12, bytes * (1.5 + 1.0 / 64), 1e-3 * bytes);
  EXPECT_LT(nf48.time->total(), nf4.time->total());
  EXPECT_DOUBLE_EQ(nf48.time->products, dense8.time->products);
  // Kept codes are not cast once more, and take two bytes an element.
  const RunEstimate kept = with("nf4", "float8_tensorwise", {"--recipe.keep_weights=true"});
  EXPECT_DOUBLE_EQ(kept.time->passes, dense8.time->passes);
  EXPECT_GT(static_cast<double>(kept.device.peak - nf48.device.peak), 1.8 * elements);
  // Memory is that of QLoRA in bf16.
  EXPECT_LT(static_cast<double>(nf48.device.peak), 1.01 * static_cast<double>(nf4.device.peak));
}

// A forward pass is a third of a training step without recomputation, in bf16.
TEST(StepTimeOfASecondModel, IsAThirdOfTheStep) {
  const std::vector<std::string> distilled{"--recipe.name=bf16", "--distill.ratio=0.5", "--distill.teacher=initial"};
  const RunEstimate alone = planned(workload("8b-l8"), 1, {"--recipe.name=bf16"}),
                    resident = planned(workload("8b-l8"), 1, distilled);
  ASSERT_TRUE(alone.time && resident.time);
  EXPECT_EQ(alone.time->second_model, 0);
  EXPECT_DOUBLE_EQ(resident.second_model_flops_per_token, resident.flops_per_token.total() / 3);
  const double step = resident.time->products + resident.time->attention + resident.time->passes;
  EXPECT_NEAR(resident.time->second_model / step, 1.0 / 3, 0.05);
  EXPECT_DOUBLE_EQ(resident.time->total() - alone.time->total(), resident.time->second_model);
  // In host memory: the link bounds a micro-batch of few tokens.
  std::vector<std::string> offloaded = distilled;
  offloaded.insert(offloaded.end(), {"--distill.offload=true", "--data.seq_len=128", "--training.micro_batch_size=1"});
  const RunEstimate away = planned(workload("8b-l8"), 1, offloaded);
  const double copies =
      static_cast<double>(away.second_model_host_bytes) * static_cast<double>(away.tokens_per_step) / 128;
  EXPECT_NEAR(away.time->second_model, copies / 50e9, 1e-9 * copies / 50e9);
  // Computation hides the copies of layers, not those of embedding, head and final norm.
  std::vector<std::string> hidden = distilled;
  hidden.emplace_back("--distill.offload=true");
  const double exposed = 2.0 * 4096 * (2 * 128256 + 1) / 50e9;
  EXPECT_NEAR(planned(workload("8b-l8"), 1, hidden).time->second_model, resident.time->second_model + exposed, 1e-6);
}

TEST(StepTimeOfStreamedState, IsThatOfItsCopies) {
  const std::vector<std::string> away{"--recipe.name=bf16", "--optimizer.offload_ratio=1"};
  std::vector<std::string> streamed = away;
  streamed.emplace_back("--optimizer.offload_streamed=true");
  const RunEstimate returned = planned(workload("8b-l8"), 1, away), e = planned(workload("8b-l8"), 1, streamed);
  EXPECT_DOUBLE_EQ(e.time->update, static_cast<double>(e.state_offload_bytes) / 32e9);
  EXPECT_LT(returned.time->update, e.time->update);
  EXPECT_LT(e.device.peak, returned.device.peak);
}

// The backward pass, two thirds of the computation of a micro-batch, hides copies.
TEST(StepTimeOfStreamedState, IsHiddenByTheBackwardPassWhereThatUpdates) {
  std::vector<std::string> options{"--recipe.name=bf16",
                                   "--optimizer.offload_ratio=1",
                                   "--training.max_norm=0",
                                   "--optimizer.offload_streamed=true",
                                   "--data.seq_len=1024",
                                   "--training.micro_batch_size=1",
                                   "--training.global_batch_size=1"};
  const RunEstimate after = planned(workload("8b-l8"), 1, options);
  options.emplace_back("--optimizer.update_in_backward=true");
  const RunEstimate within = planned(workload("8b-l8"), 1, options);
  const double passes = within.time->computation() - within.time->update;
  EXPECT_NEAR(within.time->update, static_cast<double>(within.state_offload_bytes) / 45e9 - passes * 2 / 3, 1e-9);
  EXPECT_LT(within.time->total(), after.time->total());
  EXPECT_LT(within.device.peak, after.device.peak);
}

}  // namespace
}  // namespace quench
