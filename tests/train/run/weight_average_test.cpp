// training.ema_decay and means of checkpoints.

#include "nn/optim/weight_average.h"

#include <gmock/gmock.h>

#include "core/safetensors/safetensors.h"
#include "nn/optim/table.h"
#include "tests/train/config/config_testing.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/session/model_setup.h"
#include "train/step/training_state.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using Options = std::vector<std::string>;

constexpr const char* kNorm = "model.layers.1.input_layernorm.weight";

class WeightAverageOfRuns : public ::testing::Test {
 protected:
  [[nodiscard]] static std::vector<float> stored(const std::filesystem::path& checkpoint, const std::string& name) {
    CheckpointReader reader(checkpoint);
    const Tensor tensor = Tensor::empty(reader.at(name).shape, DType::f32);
    reader.read(name, tensor);
    return {tensor.data<float>(), tensor.data<float>() + tensor.numel()};
  }
  [[nodiscard]] static std::vector<float> exported_values(const SafetensorsReader& reader, const std::string& name) {
    const SafetensorsEntry& entry = reader.at(name);
    std::vector<float> values(static_cast<std::size_t>(entry.shape.numel()));
    reader.read(entry, std::as_writable_bytes(std::span(values)));
    return values;
  }
  testing::TinyRun tiny_;
};

TEST_F(WeightAverageOfRuns, IsThatOfTheUpdatedWeights) {
  constexpr float kDecay = 0.75f;
  const RunConfig config =
      tiny_.config("run", {"--training.steps=4", "--checkpoint.interval=1", "--training.ema_decay=0.75",
                           "--export.format=hf", "--export.weights=ema", "--training.freeze=model.norm.weight"});
  const ModelSetup begun = build_model(ResolvedConfig(config), Device{});
  fill_model(*begun.model, config);
  tiny_.run(config);
  for (const nn::Parameter* parameter : begun.model->parameters()) {
    const float* first = parameter->variable.value().data<float>();
    std::vector<float> average(first, first + parameter->numel());
    for (int step = 1; step <= 4 && !parameter->frozen; ++step) {
      const std::vector<float> now = stored(tiny_.checkpoint("run", step), parameter->name);
      for (std::size_t i = 0; i < average.size(); ++i) average[i] = kDecay * average[i] + (1 - kDecay) * now[i];
    }
    if (!parameter->frozen) {
      const std::vector<float> kept = stored(tiny_.checkpoint("run", 4), "optimizer.ema." + parameter->name);
      for (std::size_t i = 0; i < average.size(); ++i) ASSERT_NEAR(kept[i], average[i], 1e-6) << parameter->name;
      average = kept;
    }
    const SafetensorsReader exported(tiny_.folder("run") / "export" / "model.safetensors");
    for (const nn::ParameterPiece& piece : parameter->pieces) {
      const std::int64_t columns = parameter->numel() / parameter->global_shape[0];
      const auto begin = average.begin() + piece.row_begin * columns;
      EXPECT_EQ(exported_values(exported, piece.hf_name), std::vector<float>(begin, begin + piece.rows * columns))
          << piece.hf_name;
    }
  }
}

TEST_F(WeightAverageOfRuns, ResumesExactlyUnderEveryOptimizer) {
  for (const nn::OptimizerEntry& optimizer : nn::optimizer_table())
    for (const Options& more :
         std::vector<Options>{{}, {"--training.ema_dtype=bf16"}, {"--lora.rank=4", "--lora.modules_to_save=norm"}}) {
      SCOPED_TRACE(std::string(optimizer.name) + ::testing::PrintToString(more));
      const testing::TinyRun tiny;
      const auto run = [&](const std::string& name, int steps) {
        Options all{"--training.dtype=bf16",       "--model.hidden_size=256",
                    "--model.num_hidden_layers=1", "--training.steps=" + std::to_string(steps),
                    "--lr_schedule.decay_steps=6", "--checkpoint.interval=0",
                    "--training.ema_decay=0.9",    "--optimizer.name=" + std::string(optimizer.name)};
        all.insert(all.end(), more.begin(), more.end());
        tiny.run(tiny.config(name, all));
      };
      run("whole", 4);
      run("parts", 2);
      run("parts", 4);
      EXPECT_EQ(tiny.losses("parts"), tiny.losses("whole"));
      testing::expect_same_tensors(tiny.checkpoint("parts", 4), tiny.checkpoint("whole", 4));
    }
}

// Half the bytes, and values near those in f32.
TEST_F(WeightAverageOfRuns, InBf16IsNearTheOneInF32) {
  for (const std::string dtype : {"f32", "bf16"})
    tiny_.run(tiny_.config(dtype, {"--training.steps=30", "--training.ema_decay=0.99", "--training.ema_dtype=" + dtype,
                                   "--checkpoint.interval=0", "--export.format=hf", "--export.weights=ema"}));
  EXPECT_EQ(tiny_.losses("bf16"), tiny_.losses("f32"));
  const CheckpointReader wide(tiny_.checkpoint("f32", 30)), narrow(tiny_.checkpoint("bf16", 30));
  const std::string name = "optimizer.ema.model.layers.0.mlp.down_proj.weight";
  EXPECT_EQ(wide.at(name).dtype, DType::f32);
  EXPECT_EQ(narrow.at(name).dtype, DType::bf16);
  const SafetensorsReader exact(tiny_.folder("f32") / "export" / "model.safetensors"),
      rounded(tiny_.folder("bf16") / "export" / "model.safetensors");
  double error = 0, distance = 0;
  const std::vector<float> a = exported_values(exact, "model.layers.0.mlp.down_proj.weight"),
                           b = exported_values(rounded, "model.layers.0.mlp.down_proj.weight");
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += std::pow(static_cast<double>(a[i] - b[i]), 2);
    distance += std::pow(static_cast<double>(a[i]), 2);
  }
  EXPECT_LT(std::sqrt(error / distance), 0.02);
  EXPECT_GT(error, 0);
}

TEST_F(WeightAverageOfRuns, NeedsADecay) {
  EXPECT_THAT(testing::complaint({"--export.weights=ema"}),
              HasSubstr("export.weights: ema, but training.ema_decay is not set"));
  EXPECT_THAT(testing::complaint({"--training.ema_dtype=bf16"}),
              HasSubstr("training.ema_dtype: bf16, but training.ema_decay is not set"));
  EXPECT_THAT(testing::complaint({"--export.weights=best"}), HasSubstr("final, ema"));
  for (const char* decay : {"0", "1", "-1"})
    EXPECT_THAT(testing::complaint({std::string("--training.ema_decay=") + decay}), HasSubstr("training.ema_decay"));
  tiny_.run(tiny_.config("run", {"--training.steps=2"}));
  try {
    tiny_.run(tiny_.config("run", {"--training.steps=4", "--training.ema_decay=0.9"}));
    FAIL() << "resumed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("training.ema_decay"));
  }
  nn::CausalLm model(build_model(ResolvedConfig(tiny_.config("run")), Device{}).config, {});
  CheckpointReader reader(tiny_.checkpoint("run", 2));
  try {
    restore_averages(reader, model);
    FAIL() << "restored";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.what(), HasSubstr("has no averaged weights; only runs with training.ema_decay store them"));
  }
}

TEST_F(WeightAverageOfRuns, OfSeveralCheckpointsIsTheMean) {
  tiny_.run(tiny_.config("run", {"--training.steps=6", "--checkpoint.interval=2"}));
  nn::CausalLm model(build_model(ResolvedConfig(tiny_.config("run")), Device{}).config, {});
  const std::vector<std::filesystem::path> paths{tiny_.checkpoint("run", 2), tiny_.checkpoint("run", 4),
                                                 tiny_.checkpoint("run", 6)};
  restore_mean(paths, model);
  for (const nn::Parameter* parameter : model.parameters()) {
    if (parameter->name != kNorm) continue;
    const auto a = stored(paths[0], kNorm), b = stored(paths[1], kNorm), c = stored(paths[2], kNorm);
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(parameter->variable.value().data<float>()[i], (a[i] + b[i] + c[i]) / 3, 1e-6);
    return;
  }
  FAIL() << kNorm;
}

}  // namespace
}  // namespace quench
