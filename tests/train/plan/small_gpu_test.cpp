// Ready runs for GPUs of 24 and 16 GB, and training.memory_limit in estimates and configs.

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "tests/testing.h"
#include "train/check/load.h"
#include "train/config/config_issue.h"
#include "train/config/presets.h"
#include "train/plan/estimate.h"
#include "train/plan/run_check.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

struct ReadyRun {
  const char* name;
  const char* model;
  std::int64_t bytes;
};

class SmallGpu : public ::testing::TestWithParam<ReadyRun> {};

RunConfig ready_run(const ReadyRun& run, const testing::TempDir& folder, std::vector<std::string> overrides = {}) {
  std::ofstream(folder.path() / "config.json") << find_embedded_config("models", run.model)->text;
  overrides.push_back("--model.path=" + folder.path().string());
  overrides.push_back("--data.train=tokens.npy");
  overrides.push_back("--data.format=npy");
  overrides.push_back("--unset=data.validation");
  return load_run_config(run.name, overrides, {.data = false, .files = false});
}

constexpr Device kSmallGpu{DeviceType::cuda, 0};
constexpr std::int64_t kOutside = std::int64_t{1} << 30;  // CUDA context and libraries

TEST_P(SmallGpu, HoldsTheReadyRunWithMargin) {
  const testing::TempDir folder;
  const RunConfig config = ready_run(GetParam(), folder);
  const RunEstimate estimate = estimate_run(ResolvedConfig(config), kSmallGpu);
  EXPECT_EQ(estimate.memory_limit, GetParam().bytes);
  EXPECT_LE(static_cast<double>(estimate.total_bytes + kOutside), 0.95 * static_cast<double>(GetParam().bytes));
  EXPECT_LT(least_run_bytes(config, resolve_model_config(config.model)), static_cast<double>(estimate.total_bytes));
}

INSTANTIATE_TEST_SUITE_P(Runs, SmallGpu,
                         ::testing::Values(ReadyRun{"qlora_llama-3.1-8b_24gb", "llama-3.1-8b", 24'000'000'000},
                                           ReadyRun{"lora_llama-3.2-3b_24gb", "llama-3.2-3b", 24'000'000'000},
                                           ReadyRun{"finetune_llama-3.2-1b_24gb", "llama-3.2-1b", 24'000'000'000},
                                           ReadyRun{"finetune_llama-3.1-8b_24gb", "llama-3.1-8b", 24'000'000'000},
                                           ReadyRun{"lora_llama-3.2-3b_16gb", "llama-3.2-3b", 16'000'000'000},
                                           ReadyRun{"qlora_llama-3.1-8b_16gb", "llama-3.1-8b", 16'000'000'000},
                                           ReadyRun{"finetune_llama-3.2-1b_16gb", "llama-3.2-1b", 16'000'000'000}));

TEST(MemoryLimitOfRuns, IsComparedWithoutAGpuToo) {
  if (is_present(kSmallGpu)) GTEST_SKIP() << "needs a machine without a GPU";
  const testing::TempDir folder;
  const ReadyRun run{"finetune_llama-3.2-1b_24gb", "llama-3.2-1b", 24'000'000'000};
  const RunEstimate fits = estimate_run(ResolvedConfig(ready_run(run, folder)), kSmallGpu);
  EXPECT_EQ(fits.available_bytes, run.bytes - kOutside);
  EXPECT_TRUE(fits.fits());
  const RunEstimate too_large =
      estimate_run(ResolvedConfig(ready_run(run, folder, {"--training.memory_limit=16GB"})), kSmallGpu);
  EXPECT_FALSE(too_large.fits());
  EXPECT_THAT(to_string(too_large), ::testing::HasSubstr("DOES NOT FIT"));
  EXPECT_THAT([&] { require_memory(too_large, kSmallGpu); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("MiB are available under training.memory_limit")));
}

TEST(MemoryLimitOfRuns, IsCheckedInConfigs) {
  const testing::TempDir folder;
  const ReadyRun run{"lora_llama-3.2-3b_16gb", "llama-3.2-3b", 16'000'000'000};
  for (const char* size : {"16", "1GiB", "16 gigabytes"})
    EXPECT_THROW((void)ready_run(run, folder, {"--training.memory_limit=" + std::string(size)}), ConfigError) << size;
  const RunConfig config = ready_run(run, folder);
  EXPECT_THAT([&] { (void)estimate_run(ResolvedConfig(config), Device{}); },
              ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("16GB limits GPU memory")));
}

// Micro-batches of 4,096 tokens keep float8 values of the weights.
TEST(KeptWeights, AreDroppedWhereTheyDoNotFit) {
  if (is_present(kSmallGpu)) GTEST_SKIP() << "needs a machine without a GPU";
  const auto config = [](const std::string& limit, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--recipe.name=float8_tensorwise", "--training.global_batch_size=8", "--data.seq_len=1024",
                             "--training.micro_batch_size=4", "--training.memory_limit=" + limit});
    return load_run_config((testing::source_dir() / "bench" / "workloads" / "8b-l8.json").string(), more,
                           {.data = false, .files = false});
  };
  const auto fitted = [&](const std::string& limit, const std::vector<std::string>& more = {}) {
    RunConfig run = config(limit, more);
    RunEstimate estimate = fit_run(run, kSmallGpu);
    return std::pair(std::move(run), std::move(estimate));
  };
  const auto [open, kept] = fitted("200GiB");
  EXPECT_FALSE(open.recipe.keep_weights.has_value());
  EXPECT_FALSE(kept.dropped_kept_weights);
  const std::int64_t without = fitted("200GiB", {"--recipe.keep_weights=false"}).second.total_bytes;
  ASSERT_LT(without, kept.total_bytes);
  const std::string between = std::to_string(((without + kept.total_bytes) / 2 + kOutside) >> 20) + "MiB";
  const auto [closed, dropped] = fitted(between);
  EXPECT_EQ(closed.recipe.keep_weights, false);
  EXPECT_TRUE(dropped.dropped_kept_weights);
  EXPECT_TRUE(dropped.fits());
  EXPECT_EQ(dropped.total_bytes, without);
  EXPECT_THAT(to_string(dropped), ::testing::HasSubstr("recipe.keep_weights is false"));
  // Not against an explicit setting, nor where it would not help.
  EXPECT_FALSE(fitted(between, {"--recipe.keep_weights=true"}).second.fits());
  EXPECT_FALSE(fitted("2GiB").second.dropped_kept_weights);
}

}  // namespace
}  // namespace quench
