// Long sequences on a GPU: inputs of recomputed layers in host memory, feed-forward parts in tiles.

#include <gtest/gtest.h>

#include "core/device/determinism.h"
#include "core/memory/allocator.h"
#include "tests/cuda_model/gpu_runs.h"
#include "train/plan/estimate.h"

namespace quench {
namespace {

using testing::expect_same_tensors;
using testing::kGpu;
using testing::loss_of;
using testing::TinyRun;

std::vector<std::string> joined_options(std::vector<std::string> options, const std::vector<std::string>& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

TEST(CudaLongSequences, InputsInHostMemoryGiveTheSameBits) {
  const TinyRun tiny;
  for (const std::string recipe : {"bf16", "float8_rowwise"}) {
    const std::vector<std::string> base{"--training.dtype=bf16",
                                        "--recipe.name=" + recipe,
                                        "--training.steps=6",
                                        "--training.activation_checkpoint=full",
                                        "--training.deterministic=true",
                                        "--model.num_hidden_layers=5"};
    tiny.run(tiny.config(recipe, base), kGpu);
    for (const char* layers : {"1", "3", "5"}) {
      const std::string name = recipe + layers;
      tiny.run(tiny.config(name, joined_options(base, {std::string("--training.offload_layers=") + layers})), kGpu);
      EXPECT_EQ(tiny.losses(name), tiny.losses(recipe)) << name;
      expect_same_tensors(tiny.checkpoint(name, 6), tiny.checkpoint(recipe, 6));
      const std::string kept = name + "kept";
      tiny.run(tiny.config(kept, joined_options(base, {std::string("--training.offload_layers=") + layers,
                                                       "--training.keep_attention_layers=3"})),
               kGpu);
      EXPECT_EQ(tiny.losses(kept), tiny.losses(recipe)) << kept;
    }
  }
  set_deterministic(false);
}

TEST(CudaLongSequences, TilesHaveTheLossesOfTheWhole) {
  const TinyRun tiny;
  const std::vector<std::vector<std::string>> kinds{
      {"--recipe.name=bf16"},
      {"--recipe.name=float8_rowwise"},
      {"--recipe.name=float8_tensorwise"},
      {"--lora.rank=4"},
      {"--lora.rank=4", "--lora.base=nf4"},
      {"--model.model_type=mixtral", "--model.num_local_experts=4", "--model.num_experts_per_tok=2"}};
  int number = 0;
  for (const std::vector<std::string>& kind : kinds) {
    SCOPED_TRACE(::testing::PrintToString(kind));
    const std::vector<std::string> base = joined_options(
        {"--training.dtype=bf16", "--data.seq_len=320", "--model.max_position_embeddings=320", "--training.steps=6",
         "--training.deterministic=true", "--model.hidden_size=64", "--model.intermediate_size=128"},
        kind);
    const std::string whole = "whole" + std::to_string(number++);
    tiny.run(tiny.config(whole, base), kGpu);
    std::vector<std::string> none;
    for (const std::string level : {"none", "selective", "full"}) {
      const std::string name = level + std::to_string(number++);
      tiny.run(tiny.config(name, joined_options(base, {"--training.mlp_tile_tokens=128",
                                                       "--training.activation_checkpoint=" + level})),
               kGpu);
      const std::vector<std::string> losses = tiny.losses(name), expected = tiny.losses(whole);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(loss_of(losses[i]), loss_of(expected[i]), 0.01 * loss_of(expected[i])) << name;
      if (none.empty()) none = losses;
      if (level == "selective") {
        EXPECT_EQ(losses, none) << "the same tiles";
      }
    }
  }
  set_deterministic(false);
}

// Whole, tiled, and tiled with inputs in host memory: the peak falls as planned.
TEST(CudaLongSequences, PeaksAreThoseOfTheEstimate) {
  const TinyRun tiny;
  // One document: rows are single sequences, as the estimate has them.
  const std::filesystem::path data = tiny.folder("document.bin");
  ShardWriter writer(data, {.vocab_size = 64, .eos_id = 0});
  std::vector<std::int32_t> tokens(5 * 8 * 4096);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(1 + i * i % 63);
  writer.append(tokens);
  writer.end_document();
  writer.finish();
  const std::vector<std::string> base{"--data.train=" + data.string(),
                                      "--model.hidden_size=512",
                                      "--model.intermediate_size=4096",
                                      "--model.num_hidden_layers=8",
                                      "--model.num_attention_heads=8",
                                      "--model.num_key_value_heads=4",
                                      "--training.dtype=bf16",
                                      "--training.steps=4",
                                      "--checkpoint.enable=false",
                                      "--data.seq_len=4096",
                                      "--training.micro_batch_size=8",
                                      "--training.global_batch_size=8",
                                      "--training.activation_checkpoint=full",
                                      "--lora.rank=8",
                                      "--model.max_position_embeddings=4096"};
  Allocator& allocator = Allocator::of(kGpu);
  const auto run = [&](const char* name, const std::vector<std::string>& more) {
    const RunConfig config = tiny.config(name, joined_options(base, more));
    allocator.trim();
    allocator.reset_peak();
    const std::int64_t before = allocator.stats().current;
    tiny.run(config, kGpu);
    const auto peak = static_cast<double>(allocator.stats().peak - before);
    const auto planned = static_cast<double>(estimate_run(ResolvedConfig(config), kGpu).device.peak);
    EXPECT_NEAR(peak, planned, 0.03 * planned) << name;
    return peak;
  };
  const double whole = run("whole", {}), tiled = run("tiled", {"--training.mlp_tile_tokens=2048"}),
               away = run("away", {"--training.mlp_tile_tokens=2048", "--training.offload_layers=8"});
  EXPECT_LT(tiled, 0.7 * whole);
  EXPECT_LT(away, tiled - 4 * 8 * 4096 * 512 * 2);
}

}  // namespace
}  // namespace quench
