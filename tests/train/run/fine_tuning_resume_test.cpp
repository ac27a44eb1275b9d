// Runs that fine-tune, in every way that the tables offer, resume exactly: each recipe that trains for the bits of what
// is stored with what its options add and with adapters, and with each optimizer; each way with each optimizer under
// one recipe or another.

#include <gtest/gtest.h>

#include <algorithm>

#include "nn/optim/table.h"
#include "recipes/recipe.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"

namespace quench {
namespace {

using recipes::Recipe;
using testing::expect_same_tensors;
using testing::TinyRun;
using Options = std::vector<std::string>;

// Recipes whose layers compute with what a few bits, or zeros, leave of their weights.
std::vector<const Recipe*> simulating_recipes() {
  std::vector<const Recipe*> all;
  for (const Recipe& recipe : recipes::recipe_table())
    if (recipe.capabilities.required == recipes::RequiredLayers::all) all.push_back(&recipe);
  return all;
}

// Every combination of one of each list's members.
std::vector<Options> product(const std::vector<std::vector<Options>>& choices) {
  std::vector<Options> all{{}};
  for (const std::vector<Options>& choice : choices) {
    std::vector<Options> longer;
    for (const Options& so_far : all)
      for (const Options& more : choice) {
        longer.push_back(so_far);
        longer.back().insert(longer.back().end(), more.begin(), more.end());
      }
    all = std::move(longer);
  }
  return all;
}

const Options kAdapters{"--lora.rank=16", R"(--lora.targets=["q_proj","v_proj","o_proj","gate_proj","down_proj"])"};

Options and_adapters(Options more) {
  more.insert(more.begin(), kAdapters.begin(), kAdapters.end());
  return more;
}

// What a run may add to a recipe.
std::vector<Options> ways_of(const Recipe& recipe) {
  const auto has = [&](std::string_view key) { return std::ranges::count(recipe.capabilities.keys, key) > 0; };
  std::vector<Options> scales{{}}, embeddings{{}};
  if (has("learned_scales")) scales.push_back({"--recipe.learned_scales=true", "--recipe.scale_lr=1e-2"});
  if (has("embedding_bits")) embeddings.push_back({"--recipe.embedding_bits=4"});
  std::vector<Options> ways = product({scales, embeddings});
  if (has("weight_grid"))
    for (const char* grid : {"binary", "ternary", "seq"})
      ways.push_back(
          {std::string("--recipe.weight_grid=") + grid, "--recipe.learned_scales=true", "--recipe.scale_dtype=f16"});
  const std::vector<Options> adapters{and_adapters({}),
                                      and_adapters({"--lora.quantize_merged=false", "--lora.dropout=0.1"})};
  for (Options& way : product({adapters, embeddings})) ways.push_back(std::move(way));
  return ways;
}

// Under every `step`th optimizer from `first` on. Rows of 256 elements have low-bit moments, those of A among them.
void expect_exact_resumption(const Options& options, std::size_t first = 0, std::size_t step = 1) {
  const TinyRun tiny;
  for (std::size_t o = first; o < nn::optimizer_table().size(); o += step) {
    const nn::OptimizerEntry& optimizer = nn::optimizer_table()[o];
    SCOPED_TRACE(::testing::PrintToString(options) + " " + std::string(optimizer.name));
    const std::string whole = "whole-" + std::string(optimizer.name), rest = "rest-" + std::string(optimizer.name);
    const auto run = [&](const std::string& name, const Options& more) {
      Options all{"--training.dtype=bf16",
                  "--training.master_dtype=none",
                  "--training.micro_batch_size=1",
                  "--training.global_batch_size=2",
                  "--training.steps=4",
                  "--data.seq_len=8",
                  "--model.hidden_size=256",
                  "--model.intermediate_size=32",
                  "--model.num_hidden_layers=1",
                  "--model.num_attention_heads=2",
                  "--model.num_key_value_heads=1",
                  "--model.head_dim=16",
                  "--evaluation.interval=0",
                  "--metrics.health_every=0",
                  "--lr_schedule.warmup_steps=1",
                  "--lr_schedule.decay_steps=4",
                  "--checkpoint.interval=2",
                  "--optimizer.name=" + std::string(optimizer.name)};
      all.insert(all.end(), options.begin(), options.end());
      all.insert(all.end(), more.begin(), more.end());
      tiny.run(tiny.config(name, all));
    };
    run(whole, {});
    run(rest, {"--checkpoint.resume=" + tiny.checkpoint(whole, 2).string()});
    const std::vector<std::string> losses = tiny.losses(whole);
    ASSERT_EQ(losses.size(), 4u);
    EXPECT_EQ(tiny.losses(rest), std::vector<std::string>(losses.begin() + 2, losses.end()));
    expect_same_tensors(tiny.checkpoint(rest, 4), tiny.checkpoint(whole, 4));
  }
}

class FineTuning : public ::testing::TestWithParam<const Recipe*> {};

// A way takes every third optimizer, the next way the next ones, the next recipe too.
constexpr std::size_t kTurns = 3;

TEST_P(FineTuning, ResumesExactlyUnderEveryOptimizer) {
  const std::vector<Options> ways = ways_of(*GetParam());
  ASSERT_GE(ways.size(), kTurns);
  const std::vector<const Recipe*> all = simulating_recipes();
  const auto recipe = static_cast<std::size_t>(std::ranges::find(all, GetParam()) - all.begin());
  for (std::size_t way = 0; way < ways.size(); ++way) {
    Options options{"--recipe.name=" + std::string(GetParam()->name)};
    options.insert(options.end(), ways[way].begin(), ways[way].end());
    expect_exact_resumption(options, (way + recipe) % kTurns, kTurns);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, FineTuning, ::testing::ValuesIn(simulating_recipes()),
                         [](const auto& recipe) { return std::string(recipe.param->name); });

TEST(FineTuningAdapters, ResumeExactlyUnderEveryOptimizer) {
  for (const Options& more : std::vector<Options>{
           {},
           {"--lora.dropout=0.1"},
           {"--lora.dora=true"},
           {"--lora.base=nf4", "--lora.dora=true"},
           {"--lora.base=float8"},
           {"--lora.modules_to_save=embed_tokens,norm", "--lora.base=nf4"},
           {"--lora.trainable_token_indices=3,1,60", "--lora.base=nf4"},
           {"--lora.modules_to_save=embed_tokens,lm_head,model.norm", "--model.tie_word_embeddings=false"},
           {"--recipe.name=float8_rowwise", "--recipe.pad=true"},
           {"--recipe.name=float8_tensorwise", "--lora.base=nf4"},
           {"--recipe.name=float8_rowwise", "--lora.base=nf4", "--lora.dora=true"}})
    expect_exact_resumption(and_adapters(more));
}

}  // namespace
}  // namespace quench
