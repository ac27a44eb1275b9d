// quench plan's search: what it chooses, against every other choice and against measured runs; requests that nothing
// meets.

#include "train/plan/search/plan_search.h"

#include <gmock/gmock.h>

#include "tests/testing.h"
#include "train/check/load.h"
#include "train/plan/search/plan_evaluator.h"
#include "train/plan/search/plan_report.h"
#include "train/session/parallel_setup.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

PlanRequest request_for(const std::string& model, const std::string& gpu, std::int64_t gpus, std::int64_t tokens,
                        std::int64_t seq_len, const std::vector<std::string>& overrides = {}) {
  PlanRequest request{.model = model, .gpus = gpus, .tokens_per_step = tokens, .seq_len = seq_len};
  request.cluster.gpu = &require_planned_gpu(gpu);
  request.cluster.rates = planned_rates(*request.cluster.gpu);
  request.overrides = overrides;
  return request;
}

std::string refusal_of_plan(const PlanRequest& request) {
  try {
    (void)search_plan(request);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// Every combination with every micro-batch, without leaving any out.
TEST(PlanSearch, FindsTheFastestOfAllCombinations) {
  for (const auto& [gpu, gpus] : {std::pair{"RTX 3090", 1}, {"H100", 2}}) {
    const PlanRequest request = request_for("smollm2-135m", gpu, gpus, gpus * 8 * 2048, 2048,
                                            {"--recipe.name=bf16", "--parallel.reshard_after_forward=true"});
    const Plan plan = search_plan(request);
    PlanEvaluator all(request);
    double fastest = 1e9;
    for (const PlanCombination& combination : all.combinations())
      for (std::size_t size = 0; size < all.micro_batches(combination).size(); ++size)
        if (const PlannedRun* run = all.run(combination, size); run != nullptr && run->over_bytes == 0)
          fastest = std::min(fastest, run->estimate.time->total());
    EXPECT_LE(plan.best.estimate.time->total(), fastest * 1.02) << gpu;
    EXPECT_EQ(plan.best.over_bytes, 0) << gpu;
    EXPECT_LT(plan.estimates, all.estimates()) << gpu;
  }
}

TEST(PlanSearch, TheWrittenConfigIsThatRun) {
  const PlanRequest request = request_for("llama-3.2-1b", "H100", 4, 16 * 4096, 4096, {"--optimizer.name=adamw_8bit"});
  const Plan plan = search_plan(request);
  const std::string text = plan_config(plan, request, {.train = {"a.bin"}, .steps = 100});
  RunConfig config = parse_run_config(text, "run.json", {}, {.data = true, .files = false});
  EXPECT_EQ(config.optimizer.name, "adamw_8bit");
  EXPECT_EQ(config.training.steps, 100);
  EXPECT_EQ(config.data.train.front().path, "a.bin");
  set_ranks(config, 4);
  const RunEstimate e = estimate_run(ResolvedConfig(config), Device{DeviceType::cuda, 0}, request.cluster);
  EXPECT_EQ(e.total_bytes, plan.best.estimate.total_bytes);
  EXPECT_DOUBLE_EQ(e.time->total(), plan.best.estimate.time->total());
  EXPECT_TRUE(e.fits());
}

TEST(PlanSearch, AlternativesSayWhyTheyLose) {
  const Plan plan = search_plan(request_for("llama-3.1-8b", "H100", 8, 64 * 8192, 8192));
  EXPECT_THAT(plan.best.choices.front(), HasSubstr("float8"));
  bool slower = false, over = false;
  for (const PlanAlternative& other : plan.alternatives) {
    SCOPED_TRACE(other.axis + " " + other.choice);
    EXPECT_FALSE(other.loses.empty());
    slower = slower || (other.axis == "recipe" && other.choice == "bf16" &&
                        other.loses.find("slower: GEMMs") != std::string::npos);
    over = over || other.loses.find("GiB over the GPU's memory") != std::string::npos;
  }
  EXPECT_TRUE(slower);
  EXPECT_TRUE(over) << "eight whole copies do not fit";
}

// One sequence for eight GPUs: parts of it, slices of the weights, or both.
TEST(PlanSearch, FewSequencesAreSplitAmongGpus) {
  const Plan plan = search_plan(request_for("llama-3.1-8b", "H100", 8, 131072, 131072));
  EXPECT_THAT(plan.best.choices[1], AnyOf(HasSubstr("context"), HasSubstr("tensor")));
  EXPECT_EQ(plan.best.micro_batch, 1);
  EXPECT_EQ(plan.best.sequences, 1);
  EXPECT_EQ(plan.best.over_bytes, 0);
}

TEST(PlanSearch, AGivenAxisCountsInTheSequencesOfAProcess) {
  const Plan plan = search_plan(request_for("smollm2-135m", "H100", 4, 8 * 8192, 8192, {"--parallel.context=4"}));
  EXPECT_EQ(plan.best.sequences, 8);
}

// Every micro-batch of the stages that are given: the largest one fills the pipeline worst.
TEST(PlanSearch, ThePipelineIsFilled) {
  const PlanRequest request =
      request_for("smollm2-135m", "H100", 4, 32 * 2048, 2048,
                  {"--recipe.name=bf16", "--parallel.pipeline=4", "--optimizer.offload_ratio=0"});
  const Plan plan = search_plan(request);
  EXPECT_EQ(plan.best.sequences, 32);
  EXPECT_GT(plan.best.estimate.time->bubble, 0);
  PlanEvaluator all(request);
  double fastest = 1e9, largest = 1e9;
  for (const PlanCombination& combination : all.combinations())
    for (std::size_t size = 0; size < all.micro_batches(combination).size(); ++size)
      if (const PlannedRun* run = all.run(combination, size); run != nullptr && run->over_bytes == 0) {
        fastest = std::min(fastest, run->estimate.time->total());
        if (size == 0) largest = std::min(largest, run->estimate.time->total());
      }
  EXPECT_LE(plan.best.estimate.time->total(), fastest * 1.02);
  EXPECT_GT(largest, fastest * 1.2) << "the test should have micro-batches that fill the pipeline badly";
}

// Between machines with a slow network stages send less than shards.
TEST(PlanSearch, SlowNetworksAreCrossedByStages) {
  PlanRequest request = request_for("llama-3.2-1b", "H100", 16, 256 * 2048, 2048, {"--recipe.name=bf16"});
  request.cluster.network_bytes = 1e9;
  const Plan slow = search_plan(request);
  EXPECT_THAT(slow.best.choices[1], HasSubstr("pipeline 2"));
  EXPECT_EQ(slow.best.over_bytes, 0);
}

TEST(PlanSearch, KeysThatAreGivenAreKept) {
  const Plan plan =
      search_plan(request_for("smollm2-135m", "H100", 2, 8 * 2048, 2048,
                              {"--recipe.name=bf16", "--training.micro_batch_size=1", "--parallel.replicate=2"}));
  EXPECT_EQ(plan.best.choices[0], "as given (recipe.name)");
  EXPECT_EQ(plan.best.choices[1], "as given (parallel.replicate)");
  EXPECT_EQ(plan.best.micro_batch, 1);
}

TEST(PlanSearch, GpusWithoutFloat8GetBf16) {
  EXPECT_EQ(search_plan(request_for("smollm2-135m", "RTX 3090", 1, 4 * 2048, 2048)).best.choices.front(), "bf16");
}

TEST(PlanSearch, WhatFitsNowhereNamesTheSmallestThatDoes) {
  const std::string message = refusal_of_plan(request_for("llama-3.1-8b", "RTX 4090", 1, 4 * 2048, 2048));
  EXPECT_THAT(message,
              AllOf(HasSubstr("llama-3.1-8b does not fit 1 x RTX 4090 24GB"), HasSubstr("GiB of a GPU at least"),
                    HasSubstr("Each of these fits: --gpus "), HasSubstr("--objective ")));
}

TEST(PlanSearch, RequestsThatDoNotFitTogetherAreRefused) {
  EXPECT_THAT(refusal_of_plan(request_for("smollm2-135m", "H100", 32, 4 * 2048, 2048)),
              HasSubstr("4 sequences of 2048 tokens do not divide among 32 GPUs, and smollm2-135m is not split in "
                        "parts that do; 65536 tokens are 1 for each GPU"));
  EXPECT_THAT(refusal_of_plan(request_for("smollm2-135m", "H100", 2, 8 * 2048 + 5, 2048)),
              HasSubstr("nearest are 16384 and 18432"));
  EXPECT_THAT(refusal_of_plan(request_for("smollm2-135m", "H100", 2, 1024, 2048)),
              HasSubstr("a sequence has 2048 tokens"));
  EXPECT_THAT(refusal_of_plan(request_for("smolm2-135m", "H100", 1, 4096, 2048)),
              HasSubstr("no model folder and no embedded model has this name; did you mean smollm2-135m?"));
  PlanRequest request = request_for("smollm2-135m", "H100", 1, 4096, 2048);
  request.objective = "everything";
  EXPECT_THAT(refusal_of_plan(request), HasSubstr("everything"));
  EXPECT_THAT(refusal_of_plan(request_for("smollm2-135m", "H100", 1, 16384 * 4, 16384)),
              HasSubstr("exceeds the model's max_position_embeddings 8192"));
}

}  // namespace
}  // namespace quench
