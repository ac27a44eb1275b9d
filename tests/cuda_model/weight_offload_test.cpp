// Second models whose weights are in host memory, on a GPU.

#include <gtest/gtest.h>

#include "core/memory/allocator.h"
#include "tests/cuda_model/gpu_runs.h"
#include "train/model_folder/model_folder.h"
#include "train/plan/estimate.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

using testing::expect_same_tensors;
using testing::kGpu;
using testing::TinyRun;
using Options = std::vector<std::string>;

// Large enough that copies take their time.
const Options kLarge{"--model.hidden_size=1024",
                     "--model.intermediate_size=2816",
                     "--model.num_hidden_layers=8",
                     "--model.num_attention_heads=8",
                     "--model.num_key_value_heads=4",
                     "--training.dtype=bf16",
                     "--training.steps=6",
                     "--checkpoint.interval=6",
                     "--training.deterministic=true",
                     "--recipe.name=qat_int4_weight_only",
                     "--distill.ratio=0.5"};

Options and_more(Options options, const Options& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

TEST(CudaWeightOffload, ATeacherInHostMemoryGivesTheSameBits) {
  const TinyRun tiny;
  int number = 0;
  for (const Options& way : std::vector<Options>{{},
                                                 {"--distill.teacher_weights=float8"},
                                                 {"--distill.teacher_weights=nf4", "--distill.hidden.weight=0.5"},
                                                 {"--model.tie_word_embeddings=false"}}) {
    SCOPED_TRACE(::testing::PrintToString(way));
    const std::string resident = fmt::format("resident{}", number), offloaded = fmt::format("offloaded{}", number);
    ++number;
    const Options options = and_more(kLarge, way);
    tiny.run(tiny.config(resident, options), kGpu);
    tiny.run(tiny.config(offloaded, and_more(options, {"--distill.offload=true"})), kGpu);
    EXPECT_EQ(tiny.losses(offloaded), tiny.losses(resident));
    expect_same_tensors(tiny.checkpoint(offloaded, 6), tiny.checkpoint(resident, 6));
  }
  set_deterministic(false);
}

// The peak falls by at least the weights of six of the eight layers, as the plan says.
TEST(CudaWeightOffload, ATeacherInHostMemoryLowersThePeakAsPlanned) {
  const TinyRun tiny;
  Allocator& allocator = Allocator::of(kGpu);
  const auto peak_of = [&](const char* offload) {
    const RunConfig config = tiny.config(
        offload, and_more(kLarge, {"--checkpoint.enable=false", std::string("--distill.offload=") + offload}));
    allocator.trim();
    allocator.reset_peak();
    const std::int64_t before = allocator.stats().current;
    tiny.run(config, kGpu);
    const std::int64_t peak = allocator.stats().peak - before;
    const RunEstimate estimate = estimate_run(ResolvedConfig(config), kGpu);
    EXPECT_NEAR(static_cast<double>(peak), static_cast<double>(estimate.device.peak),
                0.05 * static_cast<double>(estimate.device.peak))
        << offload;
    return std::pair(peak, estimate.teacher_bytes);
  };
  const auto [resident, weights] = peak_of("false");
  const auto [offloaded, two_layers] = peak_of("true");
  set_deterministic(false);
  EXPECT_LE(offloaded, resident - weights * 3 / 4 + weights / 50);
  EXPECT_LT(two_layers, weights * 3 / 10);
}

}  // namespace
}  // namespace quench
