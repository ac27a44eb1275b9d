// Training by several processes under every recipe and every optimizer: what one process does.

#include <gmock/gmock.h>

#include "nn/optim/table.h"
#include "recipes/recipe.h"
#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::ChildResult;
using testing::kSameLoss;
using testing::ShardedTraining;

// Every rank gathers the same weights, quantized alike: the first loss is that of one process. Later ones differ by the
// codes that the rounding of gradients' sums has moved.
constexpr double kSameCodes = 1e-3;

class ShardedRecipe : public ShardedTraining, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(ShardedRecipe, TrainsTheSame) {
  const recipes::Recipe& recipe = recipes::recipe_table()[GetParam()];
  // Blocks of 32 and groups of integer weights need such sizes.
  write_config(R"("model_type": "qwen3", "vocab_size": 509, "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16)");
  const std::vector<std::string> more = {fmt::format("--recipe.name={}", recipe.name), "--training.steps=4"};
  train(1, "one", more);
  train(3, "three", more);
  expect_near_run("three", "one", kSameCodes);
}

INSTANTIATE_TEST_SUITE_P(Table, ShardedRecipe, ::testing::Range<std::size_t>(0, recipes::recipe_table().size()),
                         [](const auto& place) { return std::string(recipes::recipe_table()[place.param].name); });

class ShardedOptimizer : public ShardedTraining, public ::testing::WithParamInterface<std::size_t> {};

// A checkpoint of two processes is resumed by one and by three.
TEST_P(ShardedOptimizer, TrainsTheSameAndGoesOnInAnyNumberOfProcesses) {
  const nn::OptimizerEntry& optimizer = nn::optimizer_table()[GetParam()];
  // Rows of 256 elements have low-bit moments; the parts of fused projections are matrices of their own for muon.
  write_config(R"("model_type": "llama", "vocab_size": 263, "hidden_size": 256, "intermediate_size": 37,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2)");
  const std::string name = fmt::format("--optimizer.name={}", optimizer.name);
  // Moments of few bits, and momentum that is made orthogonal in bf16, take a rounding of a gradient's sum further.
  const double same = optimizer.moment_bytes > 0 || optimizer.moments == 1 ? kSameCodes : kSameLoss;
  train(1, "one", {name, "--training.steps=6"});
  train(2, "two", {name, "--training.steps=6"});
  expect_near_run("two", "one", same);
  train(2, "part", {name, "--training.steps=4"});
  for (const int ranks : {1, 3}) {
    const std::string onwards = fmt::format("part{}", ranks);
    fs::copy(folder_ / "part", folder_ / onwards, fs::copy_options::recursive);
    train(ranks, onwards, {name, "--training.steps=6"});
    expect_near_run(onwards, "one", same);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ShardedOptimizer, ::testing::Range<std::size_t>(0, nn::optimizer_table().size()),
                         [](const auto& place) { return std::string(nn::optimizer_table()[place.param].name); });

TEST_F(ShardedTraining, AdaptersAndRoundedSumsTrainTheSame) {
  const std::vector<std::vector<std::string>> ways = {
      {"--lora.rank=3", "--lora.targets=[\"q_proj\",\"down_proj\"]"},
      {"--lora.rank=3", "--lora.targets=[\"q_proj\",\"down_proj\"]", "--recipe.name=float8_rowwise",
       "--recipe.pad=true"},
      {"--optimizer.name=adamw_8bit", "--parallel.reduce_dtype=bf16", "--training.dtype=bf16"},
      {"--recipe.name=float8_rowwise", "--training.dtype=bf16", "--recipe.pad=true"},
  };
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::vector<std::string> more = ways[i];
    more.push_back("--training.steps=4");
    const std::string one = fmt::format("one{}", i), three = fmt::format("three{}", i);
    train(1, one, more);
    train(3, three, more);
    expect_near_run(three, one, kSameCodes);
  }
}

// A base in few bits is sharded by the rows of its codes and scales, and is the same as in one process.
TEST_F(ShardedTraining, QuantizedBasesTrainTheSameAndGoOnInAnyNumberOfProcesses) {
  write_config(R"("model_type": "qwen3", "vocab_size": 509, "hidden_size": 64, "intermediate_size": 192,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16)");
  for (const std::string form : {"nf4", "float8"}) {
    const std::vector<std::string> more = {"--lora.rank=3", "--lora.targets=[\"q_proj\",\"down_proj\"]",
                                           "--lora.base=" + form, "--lora.dora=true"};
    const auto steps = [&](int count) {
      std::vector<std::string> all = more;
      all.push_back(fmt::format("--training.steps={}", count));
      return all;
    };
    const std::string one = form + "-one", three = form + "-three", part = form + "-part";
    train(1, one, steps(5));
    train(3, three, steps(5));
    expect_near_run(three, one, kSameLoss);
    train(3, part, steps(3));
    train(2, part, steps(5));
    expect_near_run(part, one, kSameLoss);
  }
}

// Every process casts the gathered 4-bit values to the same float8 codes.
TEST_F(ShardedTraining, Float8OverAnNf4BaseTrainsTheSame) {
  write_config(R"("model_type": "qwen3", "vocab_size": 509, "hidden_size": 64, "intermediate_size": 192,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16)");
  for (const std::string recipe : {"float8_tensorwise", "float8_rowwise"}) {
    const auto steps = [&](int count, const std::string& name = "") {
      return std::vector<std::string>{"--lora.rank=3", "--lora.targets=[\"q_proj\",\"down_proj\"]", "--lora.base=nf4",
                                      "--recipe.name=" + (name.empty() ? recipe : name),
                                      fmt::format("--training.steps={}", count)};
    };
    train(1, recipe, steps(5));
    train(2, recipe + "-two", steps(5));
    expect_near_run(recipe + "-two", recipe, kSameCodes);
    train(3, recipe + "-part", steps(3));
    train(2, recipe + "-part", steps(5));
    expect_near_run(recipe + "-part", recipe, kSameCodes);
    train(1, recipe + "-bf16", steps(5, "bf16"));
    const auto low = records(recipe), high = records(recipe + "-bf16");
    for (const auto& [step, record] : high)
      EXPECT_NEAR(low.at(step).at("loss").as_double(), record.at("loss").as_double(), 0.02) << recipe << ", " << step;
    EXPECT_NE(low.at(5).at("loss").as_double(), high.at(5).at("loss").as_double());
  }
}

TEST_F(ShardedTraining, AdaptersOfSeveralProcessesAreExportedAsFromTheCheckpoint) {
  const std::vector<std::string> adapters = {"--lora.rank=3", "--lora.targets=[\"q_proj\",\"v_proj\",\"down_proj\"]",
                                             "--lora.dora=true", "--training.steps=3"};
  std::vector<std::string> exported = adapters;
  exported.insert(exported.end(), {"--export.format=peft", "--export.folder=" + (folder_ / "at-end").string()});
  train(3, "run", exported);
  testing::Child exporter({testing::program_path(), "export", "--checkpoint", (folder_ / "run").string(), "--format",
                           "peft", "--output", (folder_ / "again").string()},
                          {});
  const ChildResult result = exporter.wait();
  ASSERT_EQ(result.status, 0) << result.output;
  for (const char* name : {"adapter_model.safetensors", "adapter_config.json"})
    EXPECT_EQ(testing::read_file(folder_ / "at-end" / name), testing::read_file(folder_ / "again" / name)) << name;
}

// Gathering weights as quantized or unquantized values, in every kind of pass: bit-identical results.
TEST_F(ShardedTraining, GatheredCodesTrainLikeGatheredValues) {
  const std::vector<std::vector<std::string>> ways = {
      {"--recipe.name=float8_tensorwise"},
      {"--recipe.name=float8_tensorwise", "--training.dtype=bf16", "--optimizer.name=sgd", "--metrics.health_every=2"},
      {"--recipe.name=float8_rowwise", "--training.dtype=bf16", "--training.activation_checkpoint=full"},
      {"--recipe.name=float8_rowwise", "--training.activation_checkpoint=selective", "--metrics.health_every=2"},
      {"--recipe.name=float8_rowwise", "--parallel.reshard_after_forward=false", "--recipe.stop_step=3"},
      {"--recipe.name=float8_rowwise_with_gw_hp", "--recipe.high_precision_gemms=[\"forward\"]"},
  };
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::vector<std::string> more = ways[i];
    more.push_back("--recipe.pad=true");  // rows that no number of processes divides
    more.push_back("--training.steps=5");
    const std::string codes = fmt::format("codes{}", i), values = fmt::format("values{}", i);
    train(3, codes, more);
    more.push_back("--parallel.float8_all_gather=false");
    train(3, values, more);
    expect_near_run(codes, values, 0);
  }
}

}  // namespace
}  // namespace quench
