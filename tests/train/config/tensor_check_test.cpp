// Slices of weights: what parallel.tensor contradicts.

#include <gmock/gmock.h>

#include "config_testing.h"

namespace quench {
namespace {

using testing::complaint;
using ::testing::HasSubstr;

std::string reason(std::vector<std::string> more) {
  more.emplace_back("--parallel.tensor=2");
  return complaint(more);
}

TEST(TensorCheck, ModelsThatDoNotDivideAreNamedWithTheirKey) {
  EXPECT_EQ(reason({"--model.preset=llama-3-8b"}), "");
  EXPECT_THAT(
      reason({"--model.preset=llama-3-8b", "--model.vocab_size=128255"}),
      HasSubstr(
          "parallel.tensor: 2 slices of LlamaForCausalLM are not possible: vocab_size 128255 is not divisible by 2"));
  EXPECT_THAT(reason({"--model.preset=llama-3-8b", "--model.num_key_value_heads=1"}),
              HasSubstr("num_key_value_heads 1 is not divisible by 2"));
  EXPECT_THAT(reason({"--model.preset=llama-3-8b", "--model.intermediate_size=14337"}),
              HasSubstr("intermediate_size 14337 is not divisible by 2"));
}

TEST(TensorCheck, WhatNeedsWholeWeightsRefusesSlices) {
  EXPECT_THAT(
      reason({"--grpo.rewards=exact_match", "--grpo.max_completion_length=8"}),
      HasSubstr("parallel.tensor: 2 slices of the weights, but the objective grpo needs whole ones; set it to 1"));
  EXPECT_EQ(reason({"--lora.rank=2"}), "");
  EXPECT_THAT(reason({"--lora.rank=2", "--lora.dora=true"}), HasSubstr("of adapters lora.base, lora.dora"));
  EXPECT_THAT(reason({"--optimizer.name=muon"}), HasSubstr("optimizer.name muon reads whole rows or matrices"));
  EXPECT_THAT(reason({"--optimizer.name=adamw_8bit"}), HasSubstr("optimizer.name adamw_8bit reads whole"));
  EXPECT_THAT(reason({"--recipe.name=qat_int8"}), HasSubstr("recipe.name qat_int8 quantizes or prunes whole rows"));
  EXPECT_EQ(reason({"--export.format=hf", "--export.folder=somewhere"}), "");
  EXPECT_THAT(reason({"--export.format=torchao", "--export.folder=somewhere", "--export.scheme=int8dyn_int4_g32"}),
              HasSubstr("write the model from the checkpoint with quench export"));
}

}  // namespace
}  // namespace quench
