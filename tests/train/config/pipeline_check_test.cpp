// Stages of layers: what parallel.pipeline contradicts.

#include <gmock/gmock.h>

#include "config_testing.h"

namespace quench {
namespace {

using testing::complaint;
using ::testing::HasSubstr;

std::string refusal(std::vector<std::string> more) {
  more.emplace_back("--model.preset=llama-3-8b");
  return complaint(more);
}

std::string staged(std::vector<std::string> more) {
  more.emplace_back("--parallel.pipeline=2");
  return refusal(std::move(more));
}

TEST(PipelineCheck, LayersThatDoNotFitAreNamedWithTheirKey) {
  EXPECT_EQ(staged({}), "");
  EXPECT_EQ(staged({"--parallel.pipeline_schedule=interleaved", "--parallel.pipeline_chunks=4"}), "");
  EXPECT_EQ(staged({"--parallel.pipeline_layers=[17,15]"}), "");
  EXPECT_THAT(refusal({"--parallel.pipeline=33"}),
              HasSubstr("parallel.pipeline: 33 stages of a model with 32 layers: each needs one; lower it"));
  EXPECT_THAT(staged({"--parallel.pipeline_schedule=interleaved", "--parallel.pipeline_chunks=17"}),
              HasSubstr("2 stages x 17 chunks of a model with 32 layers"));
  EXPECT_THAT(staged({"--parallel.pipeline_layers=[17,16]"}),
              HasSubstr("parallel.pipeline_layers: 17 + 16 add up to 33, but the model has 32 layers"));
  EXPECT_THAT(staged({"--parallel.pipeline_layers=[32]"}),
              HasSubstr("parallel.pipeline_layers: 1 numbers, expected 2: one for each of 2 stages"));
  EXPECT_THAT(staged({"--parallel.pipeline_layers=[32,0]"}), HasSubstr("parallel.pipeline_layers"));
  EXPECT_THAT(staged({"--parallel.pipeline_chunks=4"}),
              HasSubstr("parallel.pipeline_chunks: 4, but parallel.pipeline_schedule is 1f1b"));
  EXPECT_THAT(staged({"--parallel.pipeline_schedule=gpipe"}), HasSubstr("interleaved"));
}

TEST(PipelineCheck, KeysOfStagesNeedStages) {
  EXPECT_THAT(refusal({"--parallel.pipeline_layers=[32]"}),
              HasSubstr("parallel.pipeline_layers: a list, but parallel.pipeline is 1"));
  EXPECT_THAT(refusal({"--parallel.pipeline_schedule=interleaved"}),
              HasSubstr("parallel.pipeline_schedule: interleaved, but parallel.pipeline is 1"));
}

TEST(PipelineCheck, WhatNeedsTheWholeModelRefusesStages) {
  EXPECT_THAT(staged({"--grpo.rewards=exact_match", "--grpo.max_completion_length=8"}),
              HasSubstr("parallel.pipeline: 2 stages of the layers, but the objective grpo reads the whole model"));
  EXPECT_THAT(staged({"--training.offload_layers=2"}), HasSubstr("training.offload_layers follows the layers"));
  EXPECT_THAT(staged({"--optimizer.offload_ratio=0.5"}), HasSubstr("optimizer.offload_ratio follows the layers"));
  EXPECT_EQ(staged({"--optimizer.offload_ratio=0.5", "--optimizer.offload_streamed=true"}), "");
  EXPECT_THAT(staged({"--recipe.name=auto"}), HasSubstr("recipe.name auto measures the whole model"));
  EXPECT_THAT(staged({"--recipe.name=float8_tensorwise", "--recipe.scaling=delayed"}),
              HasSubstr("recipe.scaling delayed keeps the history of all layers"));
  EXPECT_EQ(staged({"--export.format=hf", "--export.folder=somewhere"}), "");
  EXPECT_THAT(staged({"--export.format=torchao", "--export.folder=somewhere", "--export.scheme=int8dyn_int4_g32"}),
              HasSubstr("write the model from the checkpoint with quench export"));
}

}  // namespace
}  // namespace quench
