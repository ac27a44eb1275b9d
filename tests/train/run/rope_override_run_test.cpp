// Continued training with RoPE settings of the run: longer sequences than the folder's model takes, resumption,
// exports, mistakes.

#include <gmock/gmock.h>

#include "tests/train/config/config_testing.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model/model.h"
#include "train/model_folder/model_folder.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Options = std::vector<std::string>;

constexpr const char* kFourTimes = R"(--model.rope_scaling={"rope_type": "yarn", "factor": 4})";
constexpr const char* kLongFactors = R"(--model.rope_scaling={"rope_type": "longrope", "factor": 4,
    "short_factor": [1, 1, 1, 1], "long_factor": [1, 2, 3, 4]})";

// Over a folder of 64 positions, with sequences of 96.
class RopeOverrideOfRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    tiny_.run(tiny_.config("base-run", {"--training.steps=2", "--checkpoint.interval=0", "--export.format=hf",
                                        "--export.dtype=f32", "--export.folder=" + base()}));
  }
  [[nodiscard]] std::string base() const { return tiny_.folder("base").string(); }
  [[nodiscard]] RunConfig config(const std::string& name, const Options& more) const {
    const std::string text = R"({"model": {"path": ")" + base() + R"("}, "data": {"train": [")" +
                             tiny_.folder("train.bin").string() + R"("], "seq_len": 96},
      "training": {"steps": 6, "micro_batch_size": 2, "dtype": "f32"}, "optimizer": {"lr": 1e-3},
      "lr_schedule": {"name": "constant"}, "checkpoint": {"interval": 3, "keep_latest": 0},
      "metrics": {"log_every": 1, "tensorboard": false, "log_level": "warn", "progress": "off"}})";
    Options all{"--run.folder=" + tiny_.folder(name).string()};
    all.insert(all.end(), more.begin(), more.end());
    return parse_run_config(text, name + ".json", all);
  }
  [[nodiscard]] std::string fault(const std::string& name, const Options& more) const {
    try {
      tiny_.run(config(name, more));
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  [[nodiscard]] static std::vector<float> logits(const nn::CausalLm& model) {
    const autograd::NoGrad no_grad;
    const std::vector<std::int32_t> tokens = [] {
      std::vector<std::int32_t> all;
      for (std::int32_t i = 0; i < 90; ++i) all.push_back((i * 7 + 3) % 64);
      return all;
    }();
    const Tensor values =
        model.logits(model.hidden(Tensor::from_values<std::int32_t>({90}, tokens),
                                  model.make_context(std::vector<SequenceRange>{{0, 90, 0, 90}}, 90)));
    return {values.data<float>(), values.data<float>() + values.numel()};
  }

  testing::TinyRun tiny_;
};

TEST_F(RopeOverrideOfRuns, AreTrainedKeptByResumptionAndExported) {
  for (const char* scaling : {kFourTimes, kLongFactors}) {
    SCOPED_TRACE(scaling);
    const std::string name = scaling == kFourTimes ? "yarn" : "longrope";
    const std::string folder = tiny_.folder(name + "-export").string();
    const Options options{scaling, "--export.format=hf", "--export.dtype=f32", "--export.folder=" + folder};
    tiny_.run(config(name, options));
    RunConfig first = config(name + "-parts", {scaling});
    first.training.steps = 3;
    tiny_.run(first);
    first.training.steps = 6;
    tiny_.run(first);
    testing::expect_same_tensors(tiny_.checkpoint(name + "-parts", 6), tiny_.checkpoint(name, 6));

    const nn::ModelConfig exported = read_model_config(folder);
    EXPECT_EQ(exported.max_position_embeddings, 256);
    EXPECT_EQ(exported.rope.original_max_position_embeddings, 64);
    EXPECT_DOUBLE_EQ(exported.rope.factor, 4.0);
    const Model stored = Model::open(folder), trained = Model::open(tiny_.folder(name));
    EXPECT_EQ(logits(stored.model()), logits(trained.model()));
    const Model plain = Model::open(base());
    EXPECT_NE(logits(stored.model()), logits(plain.model()));
  }
}

TEST_F(RopeOverrideOfRuns, OthersAreRefusedOnResumption) {
  tiny_.run(config("run", {kFourTimes, "--training.steps=3"}));
  EXPECT_THAT(
      fault("run", {R"(--model.rope_scaling={"rope_type": "yarn", "factor": 8})"}),
      AllOf(HasSubstr("cannot resume"), HasSubstr("model.rope_scaling: "), HasSubstr("--checkpoint.allow_changes=")));
  EXPECT_THAT(fault("run", {kFourTimes, "--model.rope_theta=50000"}), HasSubstr("model.rope_theta: "));
}

TEST_F(RopeOverrideOfRuns, SequencesBeyondTheContextAreRefused) {
  EXPECT_THAT(fault("plain", {}), AllOf(HasSubstr("data.seq_len: 96 exceeds the model's max_position_embeddings 64"),
                                        HasSubstr("or model.rope_scaling")));
  EXPECT_THAT(fault("scaled", {kFourTimes, "--data.seq_len=300"}),
              AllOf(HasSubstr("300 exceeds the model's max_position_embeddings 256"), HasSubstr("a larger factor")));
}

TEST_F(RopeOverrideOfRuns, MistakesNameTheKeyOfTheRun) {
  EXPECT_THAT(fault("mistake", {R"(--model.rope_scaling={"rope_type": "yarn", "factor": 0.25})"}),
              HasSubstr("model.rope_scaling: factor: 0.25 is below 1"));
  EXPECT_THAT(fault("mistake", {R"(--model.rope_scaling={"rope_type": "longrope", "factor": 4, "short_factor": [1],
                                   "long_factor": [1, 2, 3, 4]})"}),
              HasSubstr("model.rope_scaling: short_factor: expected a list of 4 positive numbers"));
  EXPECT_THAT(fault("mistake", {R"(--model.rope_parameters={"rope_type": "spiral"})"}),
              HasSubstr("model.rope_parameters: rope_type: 'spiral' is not supported"));
}

// An adapter has no config.json: its readers take the base folder's.
TEST_F(RopeOverrideOfRuns, AdaptersAreExportedMerged) {
  EXPECT_THAT(fault("adapters", {kFourTimes, "--lora.rank=2", "--export.format=peft",
                                 "--export.folder=" + tiny_.folder("a").string()}),
              AllOf(HasSubstr("export.format: peft holds no RoPE settings"), HasSubstr(base())));
  const std::string merged = tiny_.folder("merged").string();
  tiny_.run(config(
      "lora", {kFourTimes, "--lora.rank=2", "--export.format=hf", "--export.dtype=f32", "--export.folder=" + merged}));
  EXPECT_EQ(read_model_config(merged).rope.type, nn::RopeScaling::Type::yarn);
  const Model trained = Model::open(tiny_.folder("lora"));
  EXPECT_EQ(trained.config().rope, read_model_config(merged).rope);
  EXPECT_THAT(
      [&] {
        try {
          (void)convert_model(tiny_.folder("lora"), {}, {.path = tiny_.folder("b").string(), .format = "peft"});
        } catch (const Error& error) {
          return std::string(error.what());
        }
        return std::string();
      }(),
      HasSubstr("holds no RoPE settings"));
}

}  // namespace
}  // namespace quench
