// GPUs of `estimate --gpu`, and the GPU sizes that the ready runs name.

#include "train/plan/planned_gpu.h"

#include <gmock/gmock.h>

#include "core/system/check.h"
#include "train/check/load.h"
#include "train/config/presets.h"
#include "train/metrics/peak_flops.h"
#include "train/plan/estimate.h"

namespace quench {
namespace {

TEST(PlannedGpu, IsFoundByItsNamesInAnyCase) {
  for (const char* name : {"RTX 4090", "rtx4090", "4090", "GeForce RTX 4090", "NVIDIA GeForce RTX 4090", "4090 24GB"})
    EXPECT_EQ(require_planned_gpu(name).title(), "RTX 4090 24GB") << name;
  EXPECT_EQ(require_planned_gpu("a100-80gb").memory_bytes, std::int64_t{81920} << 20);
  EXPECT_EQ(require_planned_gpu("A100 40GB").memory_bytes, std::int64_t{40960} << 20);
  for (const char* name : {"3090", "5090", "l40s", "H100", "h200", "B200"})
    EXPECT_GT(require_planned_gpu(name).memory_bytes, 0) << name;
  for (const char* name : {"", "A100", "H1000", "RTX", "A100 24GB"})
    EXPECT_THROW((void)require_planned_gpu(name), Error) << name;
}

TEST(PlannedGpu, EachHasAPeak) {
  for (const PlannedGpu& gpu : planned_gpus()) EXPECT_TRUE(bf16_peak_flops(gpu.name).has_value()) << gpu.title();
}

// The comment at the head of a ready run is true: it fits that size and no smaller one.
TEST(PlannedGpuSlow, ReadyRunsNameTheSmallestThatHoldsThem) {
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {{16, 16'000'000'000}};
  for (const PlannedGpu& gpu : planned_gpus()) {
    if (gpu.gigabytes == sizes.back().first)
      sizes.back().second = std::min(sizes.back().second, gpu.memory_bytes);
    else
      sizes.emplace_back(gpu.gigabytes, gpu.memory_bytes);
  }
  int seen = 0;
  for (const EmbeddedConfig& run : embedded_configs()) {
    const EmbeddedConfig* model = run.kind == "runs" ? model_of_run(run) : nullptr;
    if (model == nullptr) continue;
    RunConfig config =
        load_run_config(std::string(run.name),
                        std::vector<std::string>{"--unset=model.path", fmt::format("--model.preset={}", model->name)},
                        {.data = false, .files = false});
    if (!config.training.memory_limit.empty()) continue;  // small_gpu_test.cpp
    const std::int64_t bytes = fit_run(config, Device{DeviceType::cuda, 0}).total_bytes + (std::int64_t{1} << 30);
    const auto fits = std::ranges::find_if(sizes, [&](const auto& size) { return bytes <= size.second; });
    ASSERT_NE(fits, sizes.end()) << run.name;
    EXPECT_THAT(std::string(run.text), ::testing::HasSubstr(fmt::format("\n// GPU memory: {} GB\n", fits->first)))
        << run.name << " needs " << bytes << " bytes";
    ++seen;
  }
  EXPECT_GT(seen, 30);
}

}  // namespace
}  // namespace quench
