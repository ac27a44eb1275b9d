// Planned peak memory of sharded training, against a count of what has to be in memory during the loss.

#include <gtest/gtest.h>

#include "tests/testing.h"
#include "train/check/load.h"
#include "train/plan/estimate.h"
#include "train/session/parallel_setup.h"

namespace quench {
namespace {

constexpr double kRanks = 2;

RunEstimate planned(const std::string& recipe, const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides{"--training.global_batch_size=4", "--training.master_dtype=f32",
                                     "--training.grad_dtype=auto", "--optimizer.state=f32", "--recipe.name=" + recipe};
  overrides.insert(overrides.end(), more.begin(), more.end());
  const std::string workload = (testing::source_dir() / "bench" / "workloads" / "8b-l8.json").string();
  RunConfig run = load_run_config(workload, overrides, {.data = false, .files = false});
  set_ranks(run, static_cast<std::int64_t>(kRanks));
  return estimate_run(ResolvedConfig(run), Device{DeviceType::cuda, 0});
}

// `state`: bytes of a parameter, its master weight and moments.
double needed_during_the_loss(const RunEstimate& e, double state) {
  const double tokens = 2 * 8192, width = 4096, inner = 14336, qkv = 6144, vocab = 128256, layers = 8, offloaded = 2,
               chunk = 2048, bf16 = 2, f32 = 4;
  const double saved = tokens * bf16 *
                       (layers * (qkv + width + 2 * width) + (layers - offloaded) * 2 * inner +
                        3 * width);  // and the head's input, its gradient, and that of the last norm
  const double head = vocab * width * (f32 + bf16) + chunk * vocab * bf16;  // gradient, weight, logits
  return static_cast<double>(e.parameters) / kRanks * state + saved + head;
}

// Nothing that a recipe adds is alive at the peak: codes are made of values where a GEMM reads them, and the values are
// freed; the reduction of the head's gradient has no buffer of its own.
TEST(ShardedMemory, PeakIsTheLossUnderEveryRecipe) {
  for (const char* recipe : {"bf16", "float8_tensorwise", "float8_rowwise"}) {
    SCOPED_TRACE(recipe);
    const RunEstimate separate = planned(recipe), split = planned(recipe, {"--training.master_split=true"});
    const double expected = needed_during_the_loss(separate, 2 + 4 + 4 + 4);
    EXPECT_NEAR(static_cast<double>(separate.device.peak), expected, 0.025 * expected);
    EXPECT_NEAR(static_cast<double>(separate.device.peak - split.device.peak),
                2 * static_cast<double>(separate.parameters) / kRanks, 1 << 20);
  }
}

// A float8 head holds codes of the weight in both orientations, which take the place of the bf16 weight, and at most
// codes of a chunk's logit gradients in both and of its hidden states.
TEST(ShardedMemory, Float8HeadsReleaseTheGatheredWeight) {
  const std::int64_t chunk = 2048, vocab = 128256, width = 4096, both = 2;
  for (const char* recipe : {"float8_tensorwise", "float8_rowwise"}) {
    const std::int64_t without = planned(recipe).device.peak,
                       with = planned(recipe, {"--recipe.filter.exclude=[]"}).device.peak;
    EXPECT_LE(with - without, both * chunk * (vocab + width)) << recipe;
  }
}

// Two processes share two sequences, or have one each: as many tokens. A layer's keys and values are gathered twice,
// and their gradients reduced; buffers of a layer hold those of both parts.
TEST(ShardedMemory, PartsOfSequencesNeedActivationsOfTheirTokens) {
  const RunEstimate parts = planned("bf16", {"--parallel.context=2", "--training.global_batch_size=2"}),
                    whole = planned("bf16", {"--training.micro_batch_size=1", "--training.global_batch_size=2"});
  constexpr std::int64_t kOwnTokens = 8192, kKeysAndValues = 2 * 1024, kBf16 = 2, kDecoderLayers = 8;
  constexpr std::int64_t kOwnBytes = kOwnTokens * kKeysAndValues * kBf16;
  EXPECT_EQ(parts.context_bytes, 3 * kOwnBytes * kDecoderLayers);
  EXPECT_EQ(whole.context_bytes, 0);
  EXPECT_GE(parts.device.peak, whole.device.peak);
  EXPECT_LE(parts.device.peak, whole.device.peak + 2 * 2 * 2 * kOwnBytes);  // keys and gradients, in two orders
  ASSERT_TRUE(parts.time && whole.time);
  EXPECT_GT(parts.time->exposed, whole.time->exposed + static_cast<double>(parts.context_bytes) / 300e9);
}

// Two processes hold a half of every layer each. A layer's tokens travel ten times under selective recompute: gathered
// and summed twice in the forward pass, the same and gathered twice more in the backward pass; those of the embedding
// and of the head's input each way.
TEST(ShardedMemory, SlicesOfWeightsExchangeTheTokensOfEachLayer) {
  const RunEstimate slices = planned("bf16", {"--parallel.tensor=2", "--training.global_batch_size=2"}),
                    whole = planned("bf16", {"--training.micro_batch_size=1", "--training.global_batch_size=2"});
  constexpr std::int64_t kDecoderLayers = 8, kOfOthers = 8192 * 4096 * 2;  // half of the tokens, in bf16
  const auto expected = static_cast<double>((10 * kDecoderLayers + 4) * kOfOthers);
  EXPECT_NEAR(static_cast<double>(slices.context_bytes), expected, 1e-3 * expected);
  EXPECT_EQ(slices.gather_bytes, 0);
  EXPECT_LT(slices.device.peak, whole.device.peak);
  ASSERT_TRUE(slices.time && whole.time);
  EXPECT_GT(slices.time->exposed, static_cast<double>(slices.context_bytes) / 450e9);
}

// Each of two processes holds half of the layers, and sends the hidden states of every micro-batch or their gradients.
TEST(ShardedMemory, StagesSendHiddenStatesAlone) {
  const std::vector<std::string> batch = {"--training.micro_batch_size=1", "--training.global_batch_size=4",
                                          "--training.offload_layers=0"};
  std::vector<std::string> staged = batch;
  staged.emplace_back("--parallel.pipeline=2");
  const RunEstimate stages = planned("bf16", staged), shards = planned("bf16", batch);
  EXPECT_EQ(stages.message_bytes, std::int64_t{4} * 8192 * 4096 * 2);
  EXPECT_EQ(stages.gather_bytes, 0);
  EXPECT_EQ(stages.checkpoint_bytes, shards.checkpoint_bytes);
  EXPECT_EQ(stages.parameters, shards.parameters);
  ASSERT_TRUE(stages.time && shards.time);
  const double passes = stages.time->products + stages.time->attention + stages.time->passes;
  EXPECT_NEAR(stages.time->bubble, passes / 4, 1e-9);
  EXPECT_EQ(shards.time->bubble, 0);
  // More layers in the stage that needs most, more memory.
  staged.emplace_back("--parallel.pipeline_layers=[7,1]");
  EXPECT_GT(planned("bf16", staged).device.peak, stages.device.peak);
}

// The first of four stages holds four micro-batches: in the whole step, and with offloaded state or in a brief
// simulation, where few micro-batches are simulated.
TEST(ShardedMemory, EverySimulationFillsThePipeline) {
  const auto estimated = [](std::vector<std::string> overrides, std::int64_t micro_batches, bool brief) {
    overrides.insert(overrides.end(),
                     {fmt::format("--training.global_batch_size={}", micro_batches), "--training.micro_batch_size=1",
                      "--recipe.name=bf16", "--training.offload_layers=0", "--parallel.pipeline=4"});
    const std::string workload = (testing::source_dir() / "bench" / "workloads" / "8b-l8.json").string();
    RunConfig run = load_run_config(workload, overrides, {.data = false, .files = false});
    set_ranks(run, 4);
    return estimate_run(ResolvedConfig(run), Device{DeviceType::cuda, 0}, {}, {.brief = brief});
  };
  const auto peak = [](const RunEstimate& e) { return static_cast<double>(e.device.peak); };
  const RunEstimate whole = estimated({}, 12, false);
  EXPECT_NEAR(peak(estimated({}, 12, true)) / peak(whole), 1, 1e-3);
  EXPECT_LT(peak(estimated({}, 3, true)) / peak(whole), 0.98) << "three micro-batches should not fill four stages";
  const std::vector<std::string> streamed{"--optimizer.offload_ratio=1", "--optimizer.offload_streamed=true"};
  EXPECT_NEAR(peak(estimated(streamed, 12, false)) / peak(estimated(streamed, 8, false)), 1, 1e-3);
  // Messages of all twelve micro-batches, of which six are simulated.
  EXPECT_EQ(estimated(streamed, 12, false).message_bytes, whole.message_bytes);
}

// Interleaved stages take as many micro-batches as there are stages at once, also where a part of a step is simulated.
TEST(ShardedMemory, InterleavedStagesAreSimulatedByTheirUnit) {
  for (const std::int64_t micro_batches : {3, 9, 300}) {
    const std::string workload = (testing::source_dir() / "bench" / "workloads" / "8b-l8.json").string();
    const std::vector<std::string> overrides{fmt::format("--training.global_batch_size={}", micro_batches),
                                             "--training.micro_batch_size=1",
                                             "--data.seq_len=128",
                                             "--recipe.name=bf16",
                                             "--training.offload_layers=0",
                                             "--parallel.pipeline=3",
                                             "--parallel.pipeline_schedule=interleaved"};
    RunConfig run = load_run_config(workload, overrides, {.data = false, .files = false});
    set_ranks(run, 3);
    for (const bool brief : {false, true}) {
      const RunEstimate e = estimate_run(ResolvedConfig(run), Device{DeviceType::cuda, 0}, {}, {.brief = brief});
      EXPECT_GT(e.message_bytes, 0) << micro_batches;
      EXPECT_EQ(e.message_bytes % micro_batches, 0) << micro_batches;
    }
  }
}

}  // namespace
}  // namespace quench
