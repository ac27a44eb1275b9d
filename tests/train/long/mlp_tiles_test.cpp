// training.mlp_tile_tokens: feed-forward parts a tile of tokens at a time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/ops/elementwise.h"
#include "nn/experts/expert_load.h"
#include "nn/optim/adamw.h"
#include "recipes/convert.h"
#include "recipes/recipe.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model_folder/model_folder.h"
#include "train/plan/estimate.h"
#include "train/session/data_setup.h"
#include "train/session/model_setup.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

using autograd::ActivationPolicy;
using autograd::Recompute;
using ::testing::HasSubstr;
using testing::TinyRun;

constexpr std::int32_t kTokens = 96, kVocab = 64;

// Two sequences, the second with padding after it.
Batch make_batch(std::int32_t seed) {
  Batch batch;
  for (Tensor* tensor : {&batch.input_ids, &batch.labels, &batch.positions})
    *tensor = Tensor::empty({2, kTokens / 2}, DType::i32);
  for (std::int32_t i = 0; i < kTokens; ++i) {
    batch.input_ids.data<std::int32_t>()[i] = (i * 7 + seed) % kVocab;
    batch.labels.data<std::int32_t>()[i] = (i * 11 + seed) % kVocab;
    batch.positions.data<std::int32_t>()[i] = i % (kTokens / 2);
  }
  batch.sequences.push_back({0, kTokens / 2, 0, kTokens / 2});
  batch.sequences.push_back({kTokens / 2, kTokens / 2 - 7, kTokens / 2, kTokens / 2 - 7});
  for (std::int32_t i = kTokens - 7; i < kTokens; ++i) batch.labels.data<std::int32_t>()[i] = -100;
  batch.valid_tokens = kTokens - 7;
  return batch;
}

struct Case {
  std::string_view name;
  std::string_view model;
  std::string_view recipe = "bf16";
  DType dtype = DType::f32;
  double tolerance = 1e-5;  // error of a gradient, relative to its norm
};

constexpr std::string_view kLlama = R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 32,
  "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2})";
// A norm after each part, whose input is read in the recompute of a layer.
constexpr std::string_view kGemma = R"({"model_type": "gemma3_text", "vocab_size": 64, "hidden_size": 32,
  "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8})";
// A factor of each update.
constexpr std::string_view kGranite = R"({"model_type": "granite", "vocab_size": 64, "hidden_size": 32,
  "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
  "residual_multiplier": 0.5, "attention_multiplier": 0.35})";
constexpr std::string_view kExperts = R"({"model_type": "qwen2_moe", "vocab_size": 64, "hidden_size": 32,
  "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
  "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32,
  "norm_topk_prob": false, "decoder_sparse_step": 1})";

struct Model {
  nn::CausalLm model;
  explicit Model(const Case& of)
      : model(nn::parse_model_config(Json::parse(of.model), "config.json"),
              {.dtype = of.dtype, .grad_dtype = DType::f32}) {
    model.initialize(7);
    (void)recipes::apply_recipe(model, recipes::find_recipe(of.recipe), {}, {.target = Device{}, .emulate = true});
  }
};

std::vector<float> floats_of(const Tensor& tensor) {
  const Tensor wide = Tensor::empty(tensor.shape(), DType::f32);
  cast({tensor, wide});
  return {wide.data<float>(), wide.data<float>() + wide.numel()};
}

struct Outcome {
  GradientReport report;
  std::map<std::string, std::vector<float>> gradients;
  std::vector<double> load;  // pairs of each expert of the first layer
};

Outcome outcome(const Case& of, Recompute level, std::int64_t tile, std::int64_t offloaded = 0,
                std::int64_t attention = 0) {
  Model made(of);
  made.model.set_mlp_tile_tokens(tile);
  nn::AdamW optimizer(made.model.parameters(), {});
  const std::int64_t layers = made.model.config().num_hidden_layers;
  TrainStep step(made.model, optimizer, {.recompute = level, .activations = {layers, offloaded, 0, attention}});
  std::optional<nn::ExpertLoad> load;
  if (const std::int64_t experts = made.model.config().experts.count; experts > 0) {
    load.emplace(layers, experts, Device{});
    load->reset();
    step.watch_experts(&*load);
  }
  Outcome result;
  result.report = step.accumulate(std::vector{make_batch(3), make_batch(5)}, 1);
  for (const nn::Parameter* parameter : made.model.parameters())
    if (parameter->variable.grad().defined()) result.gradients[parameter->name] = floats_of(parameter->variable.grad());
  if (load)
    for (const float pairs : floats_of(load->counts(0).clone())) result.load.push_back(static_cast<double>(pairs));
  return result;
}

void expect_near(const Outcome& got, const Outcome& expected, double tolerance) {
  EXPECT_NEAR(got.report.loss, expected.report.loss, tolerance * expected.report.loss);
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (const auto& [name, values] : expected.gradients) {
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = static_cast<double>(got.gradients.at(name)[i]) - static_cast<double>(values[i]);
      error += difference * difference;
      norm += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm)) << name;
  }
  EXPECT_EQ(got.load, expected.load);
}

class MlpTiles : public ::testing::TestWithParam<Case> {};

// Tiles of several sizes, one of them no divisor of the tokens, at every level of recompute, with inputs of recomputed
// layers in host memory too.
TEST_P(MlpTiles, GiveLossAndGradientsOfTheWhole) {
  const Case& of = GetParam();
  const Outcome whole = outcome(of, Recompute::none, 0);
  for (const std::int64_t tile : {16, 40, 96}) {
    for (const Recompute level : {Recompute::none, Recompute::selective, Recompute::full}) {
      SCOPED_TRACE(::testing::Message() << tile << " tokens, level " << static_cast<int>(level));
      expect_near(outcome(of, level, tile), whole, of.tolerance);
    }
    const Outcome tiled = outcome(of, Recompute::full, tile), away = outcome(of, Recompute::full, tile, 3);
    EXPECT_EQ(away.gradients, tiled.gradients) << "host memory changes no bit";
    EXPECT_EQ(away.report.loss, tiled.report.loss);
    for (const std::int64_t attention : {1, 3}) {
      const Outcome kept = outcome(of, Recompute::full, tile, 2, attention);
      EXPECT_EQ(kept.gradients, tiled.gradients) << "nor does kept attention";
      EXPECT_EQ(kept.report.loss, tiled.report.loss);
    }
  }
}

// Levels of recompute have the same tiles, and so the same bits; full recompute in f32 alone, as it rounds the stream
// between layers.
TEST_P(MlpTiles, GiveTheSameBitsAtEveryLevel) {
  const Case& of = GetParam();
  const Outcome none = outcome(of, Recompute::none, 32);
  for (const Recompute level : {Recompute::selective, Recompute::full}) {
    if (level == Recompute::full && of.dtype != DType::f32) continue;
    const Outcome other = outcome(of, level, 32);
    EXPECT_EQ(none.report.loss, other.report.loss);
    EXPECT_EQ(none.gradients, other.gradients);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MlpTiles,
    ::testing::Values(Case{"llama", kLlama}, Case{"gemma", kGemma}, Case{"granite", kGranite},
                      Case{"experts", kExperts},
                      Case{.name = "bf16", .model = kLlama, .dtype = DType::bf16, .tolerance = 2e-2},
                      // Rows have their own scales; weight gradients have those of a tile.
                      Case{"rowwise", kLlama, "float8_rowwise", DType::bf16, 5e-2},
                      // A scale for each tile.
                      Case{"tensorwise", kLlama, "float8_tensorwise", DType::bf16, 1.5e-1}),
    [](const auto& entry) { return std::string(entry.param.name); });

const std::vector<std::string> kLong{"--data.seq_len=192", "--model.max_position_embeddings=192", "--training.steps=6"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kLong.begin(), kLong.end());
  return more;
}

double last_loss(const TinyRun& tiny, const std::string& name) {
  const std::string line = tiny.losses(name).back();
  return std::stod(line.substr(line.find(':') + 1));
}

TEST(MlpTileTokens, RunsHaveTheLossesOfTheWhole) {
  const TinyRun tiny;
  tiny.run(tiny.config("whole", with({})));
  for (const char* level : {"none", "full"}) {
    const std::string name = std::string("tiles-") + level;
    tiny.run(tiny.config(
        name, with({"--training.mlp_tile_tokens=128", "--training.activation_checkpoint=" + std::string(level)})));
    EXPECT_NEAR(last_loss(tiny, name), last_loss(tiny, "whole"), 1e-4);
  }
  EXPECT_EQ(tiny.losses("tiles-none"), tiny.losses("tiles-full"));
}

// Adapters with dropout: draws of a tile are its own, and those of its recompute.
TEST(MlpTileTokens, AdaptersWithDropoutHaveTheSameBitsAtEveryLevel) {
  const TinyRun tiny;
  for (const char* tile : {"0", "128"}) {
    const auto run = [&](const std::string& level) {
      const std::string name = std::string(tile) + level;
      tiny.run(tiny.config(
          name, with({"--lora.rank=4", "--lora.dropout=0.2", std::string("--training.mlp_tile_tokens=") + tile,
                      "--training.activation_checkpoint=" + level})));
      return tiny.losses(name);
    };
    const auto none = run("none");
    EXPECT_EQ(run("full"), none) << tile;
    EXPECT_EQ(run("selective"), none) << tile;
  }
}

TEST(MlpTileTokens, AreRefusedWhereTheyContradictTheConfig) {
  const TinyRun tiny;
  const auto refused = [&](std::vector<std::string> options) -> std::string {
    try {
      (void)tiny.config("run", std::move(options));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_config);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused({"--training.mlp_tile_tokens=200"}),
              HasSubstr("training.mlp_tile_tokens: 200 is not a multiple of 128; nearest: 128 or 256"));
  EXPECT_THAT(refused({"--training.mlp_tile_tokens=128", "--training.activation_checkpoint=selective",
                       "--training.recompute_mlp_layers=1"}),
              HasSubstr("set training.recompute_mlp_layers to 0"));
  EXPECT_THAT(refused({"--training.mlp_tile_tokens=128", "--training.offload_layers=1"}),
              HasSubstr("set activation_checkpoint to \"full\""));
  EXPECT_EQ(refused({"--training.mlp_tile_tokens=128", "--training.offload_layers=1",
                     "--training.activation_checkpoint=full"}),
            "accepted");
  EXPECT_EQ(refused({"--training.mlp_tile_tokens=-128"}).find("accepted"), std::string::npos);
  EXPECT_THAT(refused({"--training.keep_attention_layers=1"}),
              HasSubstr("attention is computed again under training.activation_checkpoint \"full\" alone"));
  const std::vector<std::string> experts{"--model.model_type=mixtral", "--model.num_local_experts=4",
                                         "--model.num_experts_per_tok=2", "--training.mlp_tile_tokens=128"};
  EXPECT_EQ(refused(experts), "accepted");
  for (const char* term : {"--training.router_balance_loss=0.01", "--training.router_z_loss=0.001"}) {
    std::vector<std::string> options = experts;
    options.emplace_back(term);
    EXPECT_THAT(refused(options), HasSubstr("router losses are means over all tokens"));
  }
}

// The estimate runs the model's code: feed-forward activations are those of a tile, inputs of layers are on the host.
TEST(MlpTileTokens, EstimateHoldsOneTile) {
  const TinyRun tiny;
  const Device planning{DeviceType::meta, 0};
  constexpr std::int64_t kLength = 8192, kHidden = 256, kInner = 2048;
  const auto estimate = [&](std::vector<std::string> more) {
    std::vector<std::string> options{"--training.dtype=bf16",
                                     "--model.hidden_size=256",
                                     "--model.intermediate_size=2048",
                                     "--model.num_hidden_layers=6",
                                     "--data.seq_len=8192",
                                     "--model.max_position_embeddings=8192",
                                     "--training.micro_batch_size=1",
                                     "--training.global_batch_size=1",
                                     "--lora.rank=4",  // gradients hide no activations
                                     "--training.activation_checkpoint=full"};
    options.insert(options.end(), more.begin(), more.end());
    return estimate_run(ResolvedConfig(tiny.config("run", options)), planning);
  };
  const RunEstimate whole = estimate({}), tiled = estimate({"--training.mlp_tile_tokens=1024"}),
                    away = estimate({"--training.mlp_tile_tokens=1024", "--training.offload_layers=6"});
  constexpr std::int64_t kGateUp = kLength * 2 * kInner * 2, kStream = kLength * kHidden * 2;
  EXPECT_LT(tiled.device.peak, whole.device.peak - kGateUp);
  // One layer's input is in use while the next one is copied.
  EXPECT_NEAR(static_cast<double>(tiled.device.peak - away.device.peak), 4.0 * kStream, 1.0 * kStream);
  EXPECT_EQ(away.offload_bytes, 6 * kStream);
  // Results of attention, and a sum in f32 of each of the 4 heads.
  const RunEstimate kept = estimate(
      {"--training.mlp_tile_tokens=1024", "--training.offload_layers=6", "--training.keep_attention_layers=6"});
  EXPECT_EQ(kept.offload_bytes, 12 * kStream + 6 * kLength * 4 * 4);
  EXPECT_LT(kept.device.peak, away.device.peak + 2 * kStream);
  EXPECT_EQ(tiled.flops_per_token.total(), whole.flops_per_token.total());
}

}  // namespace
}  // namespace quench
