// Whole runs whose health is measured.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "tests/train/metrics/captured_log.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/metrics/json_lines.h"
#include "train/model_folder/model_folder.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

using testing::CapturedLog;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TinyRun;

std::vector<Json> health_of(const TinyRun& tiny, const std::string& name) {
  std::vector<Json> records;
  EXPECT_EQ(read_json_lines(tiny.folder(name) / "metrics" / "health.jsonl",
                            [&](const Json& record, std::int64_t) { records.push_back(record); }),
            0u);
  return records;
}

std::vector<std::int64_t> steps_of(const std::vector<Json>& records) {
  std::vector<std::int64_t> steps;
  for (const Json& record : records) steps.push_back(record.at("step").as_int());
  return steps;
}

// Values without the time.
std::vector<std::string> layers_of(const std::vector<Json>& records) {
  std::vector<std::string> result;
  for (const Json& record : records) result.push_back(record.at("step").dump() + record.at("layers").dump());
  return result;
}

TEST(TrainerHealth, EveryConvertedLayerIsRecordedAndNoLossChanges) {
  const TinyRun tiny;
  const std::vector<std::string> base{"--training.steps=10", "--recipe.name=float8_rowwise"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more);
    return all;
  };
  tiny.run(tiny.config("off", with({"--metrics.health_every=0"})));
  EXPECT_TRUE(health_of(tiny, "off").empty());
  for (const std::string level : {"none", "selective", "full"}) {
    tiny.run(tiny.config(level, with({"--metrics.health_every=4", "--training.activation_checkpoint=" + level})));
    EXPECT_EQ(tiny.losses(level), tiny.losses("off")) << level;
    testing::expect_same_tensors(tiny.checkpoint(level, 10), tiny.checkpoint("off", 10));
  }
  tiny.run(tiny.config("products", with({"--metrics.health_every=4", "--training.activation_checkpoint=selective",
                                         "--training.recompute_mlp_layers=2"})));
  EXPECT_EQ(tiny.losses("products"), tiny.losses("off"));
  const std::vector<Json> records = health_of(tiny, "none");
  EXPECT_EQ(steps_of(records), (std::vector<std::int64_t>{1, 4, 8}));
  for (const Json& record : records) {
    std::vector<std::string> names;
    for (const auto& [name, operands] : record.at("layers").as_object()) {
      names.push_back(name);
      ASSERT_EQ(operands.as_object().size(), 3u) << name;
      for (const auto& [operand, values] : operands.as_object()) {
        SCOPED_TRACE(name + " " + operand);
        EXPECT_EQ(values.at("format").as_string(), "e4m3");
        EXPECT_GT(values.at("amax").as_double(), 0);
        EXPECT_NEAR(values.at("sqnr_db").as_double(), 31.7, 2.5);
        EXPECT_EQ(values.at("saturated").as_double(), 0) << "scales are powers of two";
        EXPECT_LT(values.at("underflow").as_double(), 0.05);
        EXPECT_FALSE(values.at("nonfinite").as_bool());
      }
    }
    std::vector<std::string> expected;
    for (const std::string layer : {"0", "1"})
      for (const std::string part : {"self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"})
        expected.push_back("model.layers." + layer + "." + part);
    EXPECT_EQ(names, expected);
  }
  EXPECT_EQ(layers_of(health_of(tiny, "selective")), layers_of(records));
  EXPECT_EQ(layers_of(health_of(tiny, "full")), layers_of(records));
  EXPECT_EQ(layers_of(health_of(tiny, "products")), layers_of(records));
}

TEST(TrainerHealth, AConvertedHeadIsALayerToo) {
  const TinyRun tiny;
  tiny.run(tiny.config("run", {"--training.steps=1", "--recipe.name=float8_tensorwise", "--recipe.filter.exclude=[]",
                               "--model.tie_word_embeddings=false", "--training.loss_chunk_size=16"}));
  const std::vector<Json> records = health_of(tiny, "run");
  ASSERT_EQ(records.size(), 1u);
  const Json& head = records[0].at("layers").at("lm_head");
  ASSERT_EQ(head.as_object().size(), 3u);
  for (const char* operand : {"input", "weight"}) EXPECT_NEAR(head.at(operand).at("sqnr_db").as_double(), 31.7, 2.5);
  EXPECT_EQ(head.at("output_gradient").at("format").as_string(), "e5m2");
}

TEST(TrainerHealth, StepsSayHowMuchOfThemIsFloat8) {
  const TinyRun tiny;
  const RunConfig config = tiny.config(
      "run", {"--training.steps=4", "--recipe.name=float8_rowwise_with_gw_hp", "--recipe.high_precision_tail=0.5"});
  tiny.run(config);
  // Two of three products of two layers; attention and the tied head are in high precision.
  const double weights = 2.0 * (32 * 64 + 32 * 32 + 32 * 96 + 48 * 32);
  const double share = 4 * weights / resolve_model_config(config.model).training_flops_per_token(config.data.seq_len);
  std::vector<double> shares;
  read_json_lines(tiny.folder("run") / "metrics" / "metrics.jsonl", [&](const Json& record, std::int64_t) {
    shares.push_back(record.at("float8_share").as_double());
    EXPECT_TRUE(record.at("sol_fraction").is_null() && record.at("light_share").is_null())
        << "the peak of a processor is not known";
  });
  using ::testing::DoubleEq;
  EXPECT_THAT(shares, ::testing::ElementsAre(DoubleEq(share), DoubleEq(share), 0.0, 0.0));
}

TEST(TrainerHealth, WithoutTheRecipeThereIsNothingToMeasure) {
  const TinyRun tiny;
  const std::vector<std::string> overrides{"--training.steps=8", "--recipe.name=float8_rowwise",
                                           "--metrics.health_every=1", "--recipe.high_precision_tail=0.5"};
  tiny.run(tiny.config("tail", overrides));
  EXPECT_EQ(steps_of(health_of(tiny, "tail")), (std::vector<std::int64_t>{1, 2, 3, 4}));
  tiny.run(tiny.config("bf16", {"--training.steps=2", "--metrics.health_every=1"}));
  EXPECT_TRUE(health_of(tiny, "bf16").empty());
}

TEST(TrainerHealth, AResumedRunGoesOnWithItsRecords) {
  const TinyRun tiny;
  const std::vector<std::string> base{"--lr_schedule.decay_steps=8", "--recipe.name=float8_rowwise",
                                      "--metrics.health_every=2"};
  const auto to = [&](int steps) {
    std::vector<std::string> all = base;
    all.push_back("--training.steps=" + std::to_string(steps));
    return all;
  };
  tiny.run(tiny.config("whole", to(9)));
  tiny.run(tiny.config("parts", to(5)));
  tiny.run(tiny.config("parts", to(9)));
  EXPECT_EQ(steps_of(health_of(tiny, "whole")), (std::vector<std::int64_t>{1, 2, 4, 6, 8}));
  EXPECT_EQ(layers_of(health_of(tiny, "parts")), layers_of(health_of(tiny, "whole")));
}

// A run of a model folder in which `change` has been made to the weight of a layer.
RunConfig changed_model(const TinyRun& tiny, const std::string& name, const std::string& layer,
                        const std::function<void(const Tensor&)>& change, std::vector<std::string> overrides) {
  const RunConfig plain = tiny.config(name, overrides);
  const ModelSetup setup = build_model(ResolvedConfig(plain), Device{});
  fill_model(*setup.model, plain);
  // Folders are not written with values that are not finite: one of them is put into the file.
  constexpr float kStandIn = 12345.678f;
  std::optional<float> nonfinite;
  setup.model->visit([&](const std::string& path, nn::Module& module) {
    if (path != layer) return;
    const Tensor weight = dynamic_cast<nn::Linear&>(module).weight().variable.value();
    change(weight);
    for (float& value : std::span(weight.data<float>(), static_cast<std::size_t>(weight.numel())))
      if (!std::isfinite(value)) nonfinite = std::exchange(value, kStandIn);
  });
  const std::filesystem::path folder = tiny.folder(name + "_model");
  save_model_folder(*setup.model, {folder}, {.dtype = DType::f32});
  if (nonfinite) {
    const auto bytes_of = [](float value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
    std::string bytes = testing::read_file(folder / "model.safetensors");
    bytes.replace(bytes.find(bytes_of(kStandIn)), sizeof(float), bytes_of(*nonfinite));
    testing::write_file(folder / "model.safetensors", bytes);
  }
  RunConfig config = plain;
  config.model = {};
  config.model.path = folder.string();
  config.model.init = ModelSection::Init::load;
  return config;
}

constexpr const char* kLayer = "model.layers.1.mlp.down_proj";

TEST(TrainerHealth, ALayerThatGoesBadIsNamed) {
  const TinyRun tiny;
  const RunConfig config = changed_model(
      tiny, "run", kLayer,
      [](const Tensor& weight) {
        // One element of each row takes the range from the others.
        for (std::int64_t row = 0; row < weight.size(0); ++row) weight.data<float>()[row * weight.size(1)] = 1e5f;
      },
      {"--training.steps=4", "--recipe.name=float8_rowwise", "--metrics.health_every=1", "--optimizer.lr=1e-6"});
  const CapturedLog captured;
  tiny.run(config);
  const std::string text = captured.text();
  EXPECT_THAT(text, HasSubstr(std::string("step 1: weight of ") + kLayer + ": "));
  EXPECT_THAT(text, HasSubstr("become 0 in e4m3"));
  EXPECT_THAT(text, HasSubstr(std::string("add \"") + kLayer + "\" to recipe.filter.exclude"));
  EXPECT_THAT(text, Not(HasSubstr(std::string("step 2: weight of ") + kLayer)));
}

TEST(TrainerHealth, TheGuardNamesTheLayerThatIsNotFinite) {
  const TinyRun tiny;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const RunConfig config = changed_model(
        tiny, std::isinf(bad) ? "inf" : "nan", kLayer, [&](const Tensor& weight) { weight.data<float>()[40] = bad; },
        {"--training.steps=4", "--recipe.name=float8_rowwise", "--metrics.health_every=100"});
    const CapturedLog captured;
    try {
      tiny.run(config);
      ADD_FAILURE() << "the guard saw nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::nonfinite);
      EXPECT_THAT(error.what(), HasSubstr(std::string("first non-finite tensor: weight of ") + kLayer));
    }
    EXPECT_THAT(captured.text(), HasSubstr(std::string("weight of ") + kLayer + " is not finite"));
  }
}

// Without low-precision operands to measure: the weight, or what the forward pass makes of it, or the gradient where
// the backward pass came first.
TEST(TrainerHealth, TheOriginIsNamedWithoutARecipe) {
  const TinyRun tiny;
  const auto message = [&](const std::string& name, const std::string& layer,
                           const std::function<void(const Tensor&)>& change, std::vector<std::string> more) {
    more.push_back("--training.steps=2");
    try {
      tiny.run(changed_model(tiny, name, layer, change, more));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto fill = [](float value) {
    return [value](const Tensor& weight) { std::fill_n(weight.data<float>(), weight.numel(), value); };
  };
  EXPECT_THAT(message("weight", kLayer, [](const Tensor& weight) { weight.data<float>()[40] = NAN; }, {}),
              HasSubstr(std::string("first non-finite tensor: weight of ") + kLayer));
  EXPECT_THAT(message("tail", kLayer, [](const Tensor& weight) { weight.data<float>()[40] = NAN; },
                      {"--recipe.name=float8_rowwise", "--recipe.high_precision_tail=1"}),
              HasSubstr(std::string("first non-finite tensor: weight of ") + kLayer));
  EXPECT_THAT(message("activation", "model.layers.1.mlp.gate_up_proj", fill(1e20f), {}),
              HasSubstr("first non-finite tensor: input of model.layers.1.mlp.down_proj"));
}

// The step is not one whose health is measured: it is repeated to find out.
TEST(TrainerHealth, AStepThatFailsUnmeasuredIsMeasuredAfterwards) {
  const TinyRun tiny;
  const RunConfig config =
      tiny.config("run", {"--optimizer.lr=1000", "--training.max_norm=0", "--recipe.name=float8_rowwise",
                          "--training.on_nonfinite=skip", "--training.max_consecutive_skips=2"});
  const CapturedLog captured;
  EXPECT_THROW(tiny.run(config), Error);
  const std::vector<Json> records = health_of(tiny, "run");
  ASSERT_GE(records.size(), 2u) << captured.text();
  EXPECT_GT(records[1].at("step").as_int(), 1);
  EXPECT_TRUE(records[1].at("nonfinite").as_bool());
  EXPECT_THAT(captured.text(), HasSubstr("of model.layers."));
}

}  // namespace
}  // namespace quench
