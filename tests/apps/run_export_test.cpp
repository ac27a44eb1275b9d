// Quantized exports at the end of a run: the section export of its config.

#include <gmock/gmock.h>

#include "core/safetensors/safetensors.h"
#include "tests/apps/run_project.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;

class RunExport : public testing::RunProject {
 protected:
  [[nodiscard]] static std::vector<std::string> train(std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "run.json", "--training.steps=6", "--evaluation.interval=0"});
    return more;
  }
  [[nodiscard]] std::string weights(const std::string& folder, const std::string& name = "model.safetensors") const {
    return read_file(work() / folder / name);
  }
  // Export of the run's last checkpoint.
  [[nodiscard]] std::string by_verb(std::vector<std::string> more,
                                    const std::string& name = "model.safetensors") const {
    more.insert(more.begin(), {"quantize", "--checkpoint", "run", "--output", "by-verb"});
    expect_ok(more);
    return weights("by-verb", name);
  }
  void expect_refused(std::vector<std::string> more, const std::string& words) const {
    for (const std::vector<std::string>& verb : {std::vector<std::string>{"train"}, {"config", "check"}}) {
      std::vector<std::string> arguments = verb;
      arguments.emplace_back("run.json");
      arguments.insert(arguments.end(), more.begin(), more.end());
      const Outcome outcome = run(arguments);
      EXPECT_EQ(outcome.status, 2) << outcome.output;
      EXPECT_THAT(outcome.errors + outcome.output, HasSubstr(words));
    }
    EXPECT_FALSE(fs::exists(work() / "run"));
  }
};

TEST_F(RunExport, ASchemeWithRulesIsWhatTheVerbWrites) {
  const Outcome done = run(train(
      {"--export.scheme=int4_weight_only_g32", "--export.rules=*.down_proj=int8_weight_only,*.0.self_attn.*=none"}));
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, AllOf(HasSubstr("int8_weight_only"), HasSubstr("(kept: a rule)")));
  EXPECT_EQ(weights("run/export"), by_verb({"--scheme", "int4_weight_only_g32", "--rule",
                                            "*.down_proj=int8_weight_only", "--rule", "*.0.self_attn.*=none"}));
  EXPECT_EQ(read_json("run/config.json").at("export").at("format").as_string(), "compressed-tensors");
  EXPECT_THAT(weights("run/export", "README.md"), HasSubstr("int4_weight_only_g32"));
  (void)continuation(run(generate("run/export")));
}

TEST_F(RunExport, EveryFormatOfTheTable) {
  expect_ok(train({"--export.format=gguf", "--export.scheme=q8_0"}));
  EXPECT_EQ(weights("run/export", "model.gguf"), by_verb({"--format", "gguf", "--scheme", "q8_0"}, "model.gguf"));
  fs::create_directory(work() / "alone");  // the tokenizer too is in the file
  fs::copy_file(work() / "run/export/model.gguf", work() / "alone/model.gguf");
  EXPECT_EQ(continuation(run(generate("alone"))), continuation(run(generate("run/export"))));
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--export.format=torchao", "--export.scheme=int8dyn_int8"},
        {"--export.format=sparse24", "--export.sparsity=2:4"}}) {
    expect_ok(train(more));  // at its last step: the export alone
    EXPECT_TRUE(fs::exists(work() / "run/export/model.safetensors"));
    EXPECT_FALSE(fs::exists(work() / "run/export/model.gguf"));
    (void)continuation(run(generate("run/export")));
  }
}

TEST_F(RunExport, QuantizationAwareTrainingIsExportedAsItsRecipeSimulates) {
  const std::string last = "*.1.mlp.*";
  expect_ok(
      train({"--recipe.name=qat_int4_weight_only", "--recipe.filter.exclude=lm_head," + last, "--export.folder=out"}));
  const Json section = read_json("run/config.json").at("export");
  EXPECT_EQ(section.at("scheme").as_string(), "int4_weight_only_g32");
  EXPECT_EQ(section.at("format").as_string(), "compressed-tensors");
  EXPECT_EQ(weights("out"), by_verb({"--scheme", "int4_weight_only_g32", "--exclude", "lm_head," + last}));
  EXPECT_EQ(read_file(work() / "out/config.json"), read_file(work() / "by-verb/config.json"));
  for (const char* folder : {"out", "by-verb"})
    EXPECT_THAT(weights(folder, "README.md"),
                AllOf(HasSubstr("| Method | quantization-aware training: the values that it simulated |"),
                      HasSubstr("| Base model | none, random weights |"), HasSubstr("| Training data | train-*.bin: "),
                      HasSubstr(" documents, "), HasSubstr("| Steps | 6 of 4 sequences of 32 tokens, "),
                      HasSubstr("| Recipe | `qat_int4_weight_only`, trained for `int4_weight_only_g32` |"),
                      Not(HasSubstr("Calibration"))));
  // A plain model where that is asked for.
  expect_ok(train({"--recipe.name=qat_int4_weight_only", "--run.folder=plain", "--export.format=hf"}));
  EXPECT_EQ(read_json("plain/export/config.json").find("quantization_config"), nullptr);
}

TEST_F(RunExport, ARecipeOfInt8InputsIsExportedWithTheirZeroPoints) {
  const Outcome done = run(train({"--recipe.name=qat_int8", "--export.folder=out"}));
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output + done.errors, HasSubstr("export: compressed-tensors, int8dyn_int8_row"));
  const Json groups = read_json("out/config.json").at("quantization_config").at("config_groups");
  const Json inputs = groups.as_object().front().second.at("input_activations");
  EXPECT_FALSE(inputs.at("symmetric").as_bool());
  EXPECT_EQ(inputs.at("strategy").as_string(), "token");
  EXPECT_EQ(weights("out"), by_verb({"--scheme", "int8dyn_int8_row"}));
  (void)continuation(run(generate("out")));
}

TEST_F(RunExport, ThatNoSchemeStoresTheRecipeIsSaid) {
  const Outcome done =
      run(train({"--recipe.name=qat_int4_weight_only", "--recipe.group_size=16", "--export.folder=out"}));
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output + done.errors, HasSubstr("export: hf, in high precision; no scheme stores what the recipe"));
}

TEST_F(RunExport, CalibratesBeforeTheModelGoes) {
  const std::vector<std::string> section = {"--export.scheme=int4_weight_only_g32", "--export.method=gptq",
                                            "--export.calibration=corpus.txt",      "--export.calibration_samples=8",
                                            "--export.calibration_seq_len=32",      "--recipe.name=float8_rowwise"};
  expect_ok(train(section));
  EXPECT_EQ(weights("run/export"),
            by_verb({"--scheme", "int4_weight_only_g32", "--method", "gptq", "--calibration", "corpus.txt",
                     "--calibration-samples", "8", "--calibration-seq-len", "32"}));
  EXPECT_THAT(weights("run/export", "README.md"), HasSubstr("8 sequences of 32 tokens from corpus.txt"));
}

// ExecuTorch's CPU kernels take f32; the values stay those of training in bf16.
TEST_F(RunExport, ADtypeOfItsOwnKeepsTheTrainedValues) {
  expect_refused({"--export.scheme=int8_weight_only", "--export.dtype=f16"}, "export.dtype: f16 is for weights that");
  const std::vector<std::string> qat = {"--recipe.name=qat_int4_weight_only", "--training.dtype=bf16"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), qat.begin(), qat.end());
    expect_ok(train(more));
  };
  const auto dense = [&](const std::string& folder) {
    expect_ok({"export", "--model", folder, "--dtype", "f32", "--output", "dense-" + folder});
    return weights("dense-" + folder);
  };
  with({"--export.folder=narrow"});
  with({"--export.folder=wide", "--export.dtype=f32"});
  EXPECT_EQ(read_json("wide/config.json").at("dtype").as_string(), "float32");
  EXPECT_EQ(dense("wide"), dense("narrow"));
  for (const char* format : {"hf", "torchao", "gguf"}) {
    const std::string folder = std::string("f32-") + format;
    with({"--export.folder=" + folder, "--export.dtype=f32", std::string("--export.format=") + format});
    (void)continuation(run(generate(folder)));
  }
}

TEST_F(RunExport, ANameThatEndsInGgufIsOneFile) {
  expect_refused({"--export.format=hf", "--export.folder=m.gguf"},
                 "export.folder: m.gguf names a GGUF file, and format "
                 "hf writes a folder");
  expect_ok(train({"--export.format=gguf", "--export.scheme=q8_0", "--export.folder=out/m.gguf"}));
  EXPECT_TRUE(fs::is_regular_file(work() / "out/m.gguf"));
  (void)continuation(run(generate("out/m.gguf")));
}

TEST_F(RunExport, LayersTrainedForOtherCodesThanAreStoredAreNamed) {
  const Outcome done =
      run(train({"--recipe.name=qat_int4_weight_only", "--export.rules=*.down_proj=int8_weight_only"}));
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.errors, HasSubstr("these layers were trained for int4_weight_only_g32 (recipe qat_int4_weight_only) "
                                     "and are stored as int8_weight_only: model.layers.*.mlp.down_proj (2)"));
  EXPECT_THAT(run(train({"--recipe.name=qat_int4_weight_only", "--run.folder=plain"})).errors,
              Not(HasSubstr("were trained for")));
}

TEST_F(RunExport, WhatItsReaderCannotRunIsRefusedOrWarnedAbout) {
  expect_refused({"--export.scheme=mxfp8_weight_only", "--export.format=torchao"},
                 "loads the folder but cannot run it: TorchAO supports MX weights with MX inputs only; "
                 "the nearest scheme that it runs is float8_weight_only");
  expect_refused({"--export.scheme=int3_weight_only", "--export.reader=llama.cpp"},
                 "export.reader: llama.cpp does not");
  expect_refused({"--export.scheme=int8dyn_int3_g32", "--export.reader=vllm"}, "the nearest scheme that it runs is");
  const Outcome done = run(train({"--export.scheme=int8dyn_int3_g32"}));
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.errors, HasSubstr("scheme int8dyn_int3_g32 in format compressed-tensors: vLLM"));
}

TEST_F(RunExport, WhatCannotBeWrittenIsRefusedBeforeTheFirstStep) {
  expect_refused({"--export.scheme=int4"}, "export.scheme: 'int4' is unknown; did you mean int4_weight_only_g128");
  expect_refused({"--export.format=compressed-tensors"}, "stores quantized weights: name a scheme");
  expect_refused(
      {"--export.format=compressed-tensors", "--recipe.name=qat_int4_weight_only", "--recipe.group_size=48"},
      "no scheme stores what recipe qat_int4_weight_only trains with recipe.group_size 48; schemes have groups "
      "of 32, 64 and 128 and whole rows; 48 does not divide the 64 inputs of some layers either");
  expect_refused({"--export.format=gguf", "--export.scheme=int8dyn_int8"}, "cannot store scheme int8dyn_int8");
  expect_refused({"--export.scheme=int8_weight_only", "--export.rules=*.up_proj=q4_k"}, "cannot store scheme q4_k");
  expect_refused({"--export.scheme=int8_weight_only", "--export.rules=*.no_such=none"},
                 "export: the quantization rule for '*.no_such' matches no linear layer");
  expect_refused({"--export.scheme=int8_weight_only", "--export.rules=up_proj"}, "expected PATTERN=SCHEME");
  expect_refused({"--export.format=hf", "--export.method=gptq"}, "export.method: has no effect without export.scheme");
  expect_refused({"--export.scheme=int8_weight_only", "--export.method=gptq"}, "export.calibration: is missing");
  expect_refused({"--export.scheme=int8_weight_only", "--export.method=hqq", "--export.damping=0.1"},
                 "export.damping: has no effect on method hqq");
  expect_refused({"--export.scheme=int8_weight_only", "--export.calibration=corpus.txt"}, "has no effect on");
  expect_refused({"--export.scheme=int8_weight_only", "--export.method=gptq", "--export.calibration=absent.txt"},
                 "no file matches \"absent.txt\"");
  expect_refused({"--export.format=sparse24"}, "export.sparsity: is missing");
  expect_refused({"--export.format=peft", "--lora.rank=4", "--export.scheme=int8_weight_only"}, "adapters alone");
  expect_refused({"--export.scheme=float8_dynamic_block", "--export.exclude=*"},
                 "no layer of the model can be quantized");
}

TEST_F(RunExport, EmptyCalibrationDataStopTheRunAtItsStart) {
  testing::write_file(work() / "empty.txt", "");
  const Outcome refused =
      run(train({"--export.scheme=int4_weight_only_g32", "--export.method=gptq", "--export.calibration=empty.txt"}));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors,
              AllOf(HasSubstr("export.calibration: the calibration data hold"), Not(HasSubstr("step 1/"))));
}

// Means of checkpoints, and averages of training.ema_decay.
class WeightsOfRuns : public testing::RunProject {
 protected:
  [[nodiscard]] std::vector<float> norm(const std::string& folder) const {
    const SafetensorsReader reader(work() / folder / "model.safetensors");
    const SafetensorsEntry& entry = reader.at("model.norm.weight");
    std::vector<float> values(static_cast<std::size_t>(entry.shape.numel()));
    reader.read(entry, std::as_writable_bytes(std::span(values)));
    return values;
  }
  void expect_refused(std::vector<std::string> more, const std::string& words) const {
    more.insert(more.begin(), {"export", "--output", "bad"});
    const Outcome outcome = run(more);
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.errors, HasSubstr(words));
    EXPECT_FALSE(std::filesystem::exists(work() / "bad"));
  }
};

TEST_F(WeightsOfRuns, AreAveraged) {
  expect_ok({"train", "run.json", "--training.steps=6", "--evaluation.interval=0", "--checkpoint.interval=2",
             "--checkpoint.keep_latest=0", "--training.ema_decay=0.5", "--export.format=hf", "--export.weights=ema"});
  for (const char* step : {"2", "4", "6"})
    expect_ok({"export", "--checkpoint", std::string("run/checkpoints/step-") + step, "--dtype", "f32", "--output",
               std::string("at-") + step});
  expect_ok({"export", "--checkpoint", "run", "--average", "2", "4", "6", "--dtype", "f32", "--output", "mean"});
  const auto a = norm("at-2"), b = norm("at-4"), c = norm("at-6"), mean = norm("mean");
  for (std::size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR(mean[i], (a[i] + b[i] + c[i]) / 3, 5e-3);
  EXPECT_NE(mean, c);
  expect_ok({"export", "--checkpoint", "run", "--weights", "ema", "--output", "ema"});
  EXPECT_EQ(testing::read_file(work() / "ema" / "model.safetensors"),
            testing::read_file(work() / "run" / "export" / "model.safetensors"));
  expect_refused({"--checkpoint", "run", "--average", "2", "5"},
                 "has no valid checkpoint of step 5; it has those of 6, 4, 2");
  expect_refused({"--checkpoint", "run", "--average", "2", "2"}, "step 2 is named twice");
  expect_refused({"--checkpoint", "run", "--average", "2"}, "name two or more");
  expect_refused({"--checkpoint", "run", "--average", "2", "4", "--weights", "ema"}, "exclude each other");
  expect_refused({"--checkpoint", "run", "--weights", "best"}, "use final or ema");
  expect_refused({"--checkpoint", "run/checkpoints/step-2", "--average", "2", "4"}, "needs a run folder");
  expect_refused({"--model", "at-2", "--average", "2", "4"}, "is a model folder: --average and --weights are for runs");
}

}  // namespace
}  // namespace quench
