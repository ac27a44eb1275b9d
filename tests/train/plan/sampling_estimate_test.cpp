// Estimates of runs whose objective samples.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/memory/allocator.h"
#include "nn/attention/kv_cache.h"
#include "nn/attention/paged_keys.h"
#include "tests/train/run/grpo_fixture.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model_folder/model_folder.h"
#include "train/objectives/grpo/grpo_section.h"
#include "train/plan/estimate.h"
#include "train/session/model_setup.h"
#include "train/session/parallel_setup.h"

namespace quench {
namespace {

using testing::GrpoTinyRun;
using Options = std::vector<std::string>;

// Large enough that segments of 16 MiB do not decide the ratio, with keys that weigh as much as the weights.
const Options kLargeRollouts{"--training.steps=2",
                             "--checkpoint.enable=false",
                             "--model.hidden_size=256",
                             "--model.intermediate_size=512",
                             "--model.num_hidden_layers=4",
                             "--model.num_attention_heads=4",
                             "--model.num_key_value_heads=4",
                             "--model.max_position_embeddings=512",
                             "--data.seq_len=256",
                             "--grpo.num_generations=16"};

std::int64_t pages_of(std::int64_t tokens) {
  return (tokens + nn::kPageTokens - 1) / nn::kPageTokens;
}

Options with(Options options, const Options& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

// Prompts of 200 tokens, which fill the passes that read them.
void write_long_prompts(const GrpoTinyRun& tiny) {
  std::string records;
  for (char first = 'a'; first < 'm'; ++first)
    records += R"({"prompt": ")" + std::string(1, first) + std::string(199, 'q') + "\"}\n";
  testing::write_file(tiny.folder() / "prompts.jsonl", records);
}

// Bytes that the run reserves, over those of the estimate.
double reserved_share(const GrpoTinyRun& tiny, const RunConfig& config, const RunEstimate& estimate) {
  Allocator& host = Allocator::of(Device{});
  host.trim();
  host.reset_peak();
  const std::int64_t before = host.stats().reserved;
  tiny.run(config);
  const auto measured = static_cast<double>(host.stats().peak_reserved - before);
  return measured / static_cast<double>(estimate.device.peak_reserved + estimate.data_bytes);
}

// A reward model of the run's sizes, with a tokenizer of fewer tokens.
std::string reward_model(const GrpoTinyRun& tiny, const RunConfig& config) {
  const ModelSetup setup = build_model(ResolvedConfig(config), Device{});
  (void)setup.model->add_head("score", 1, setup.model->options());
  setup.model->initialize(3);
  const std::filesystem::path folder = tiny.folder() / "judge",
                              stored = testing::source_dir() / "tests/train/rolling_likelihood/bos";
  (void)save_model_folder(*setup.model, {.folder = folder}, {.dtype = DType::f32});
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy(stored / file, folder / file, std::filesystem::copy_options::overwrite_existing);
  return folder.string();
}

TEST(SamplingEstimate, CountsTheKeysOfTheSequencesThatAreSampledTogether) {
  const GrpoTinyRun tiny;
  write_long_prompts(tiny);
  const RunConfig config = tiny.config("run", kLargeRollouts);
  const RunEstimate estimate = estimate_run(ResolvedConfig(config), Device{});
  const nn::ModelConfig model = resolve_model_config(config.model);
  // 4 prompts of 16 completions, each of 257 tokens and a page.
  EXPECT_EQ(estimate.sampling_cache_bytes,
            pages_of(64 * (257 + nn::kPageTokens)) * nn::kPageTokens * nn::KvCache::bytes_per_token(model, DType::f32));
  EXPECT_EQ(estimate.gathered_bytes, 0);
  EXPECT_EQ(estimate.teacher_bytes, 0);
  EXPECT_GE(estimate.device.peak, estimate.sampling_cache_bytes + 16 * estimate.parameters);
  EXPECT_THAT(to_string(estimate), ::testing::HasSubstr("keys while sampling"));
  EXPECT_NEAR(reserved_share(tiny, config, estimate), 1.0, 0.05);
}

TEST(SamplingEstimate, CountsTheReferenceOfADivergence) {
  const GrpoTinyRun tiny;
  write_long_prompts(tiny);
  const RunConfig config = tiny.config("run", with(kLargeRollouts, {"--grpo.beta=0.1"}));
  const RunEstimate estimate = estimate_run(ResolvedConfig(config), Device{});
  EXPECT_NEAR(static_cast<double>(estimate.teacher_bytes), 4.0 * static_cast<double>(estimate.parameters),
              0.01 * 4.0 * static_cast<double>(estimate.parameters));
  EXPECT_THAT(to_string(estimate), ::testing::HasSubstr("reference, of these"));
  EXPECT_NEAR(reserved_share(tiny, config, estimate), 1.0, 0.05);
}

TEST(SamplingEstimate, OfShardedWeightsCountsThoseOfTheOtherRanks) {
  const GrpoTinyRun tiny;
  write_long_prompts(tiny);
  RunConfig config = tiny.config("run", with(kLargeRollouts, {"--training.global_batch_size=8"}));
  const RunEstimate single = estimate_run(ResolvedConfig(config), Device{});
  set_ranks(config, 2);
  const RunEstimate sharded = estimate_run(ResolvedConfig(config), Device{});
  EXPECT_EQ(sharded.sampling_cache_bytes, single.sampling_cache_bytes);
  const auto weights = static_cast<double>(4 * sharded.parameters);
  EXPECT_GE(static_cast<double>(sharded.gathered_bytes), 0.98 * weights);
  EXPECT_LE(static_cast<double>(sharded.gathered_bytes), 1.3 * weights) << "a unit is also there as it is sent";
  EXPECT_THAT(to_string(sharded), ::testing::HasSubstr("whole weights, then"));
}

TEST(SamplingEstimate, CountsTheWeightsOfARewardModelAndItsPass) {
  const GrpoTinyRun tiny;
  write_long_prompts(tiny);
  const std::string folder =
      reward_model(tiny, tiny.config("judged", with(kLargeRollouts, {"--model.vocab_size=320"})));
  const RunConfig config = tiny.config(
      "run",
      with(kLargeRollouts, {"--grpo.rewards=model", "--grpo.reward_pattern=null", "--grpo.reward_model=" + folder}));
  const RunEstimate estimate = estimate_run(ResolvedConfig(config), Device{});
  const auto weights = static_cast<double>(4 * estimate.parameters);
  EXPECT_NEAR(static_cast<double>(estimate.reward_model_bytes), weights, 0.05 * weights) << "without a head of tokens";
  EXPECT_EQ(estimate.teacher_bytes, 0);
  EXPECT_THAT(to_string(estimate), ::testing::HasSubstr("reward model, of these"));
  EXPECT_NEAR(reserved_share(tiny, config, estimate), 1.0, 0.05);
}

TEST(SamplingEstimate, OfDistillationCountsTheKeysOfOwnAnswers) {
  const testing::TinyRun tiny;
  const auto estimated = [&](const char* share) {
    Options options{"--data.multipack=true", "--distill.teacher=initial", "--recipe.name=qat_int4_weight_only",
                    "--recipe.group_size=16", std::string("--distill.on_policy=") + share};
    if (share != std::string("0")) options.emplace_back("--distill.max_completion_length=8");
    return estimate_run(ResolvedConfig(tiny.config("run", options)), Device{});
  };
  const nn::ModelConfig model = resolve_model_config(tiny.config("model").model);
  // 4 prompts, one answer of each, in sequences of 24 inputs.
  EXPECT_EQ(estimated("0.5").sampling_cache_bytes,
            pages_of(4 * (25 + nn::kPageTokens)) * nn::kPageTokens * nn::KvCache::bytes_per_token(model, DType::f32));
  EXPECT_EQ(estimated("0").sampling_cache_bytes, 0);
}

}  // namespace
}  // namespace quench
