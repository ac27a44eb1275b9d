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
#include "train/setup/model_setup.h"

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

}  // namespace
}  // namespace quench
