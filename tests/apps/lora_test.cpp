// Training adapters over a model, and using them, through the program.

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

class Lora : public testing::RunProject {
 protected:
  void SetUp() override {
    RunProject::SetUp();
    make_base();
  }

  [[nodiscard]] static std::vector<std::string> train(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"train", "run.json", "--lora.rank=4", "--lora.alpha=8", "--lora.dropout=0.1",
                               "--lr_schedule.name=constant", "--checkpoint.keep_latest=0"});
    return more;
  }
  [[nodiscard]] double loss(std::vector<std::string> source) const {
    source.insert(source.begin(), {"eval", "--data", "held_out.txt", "--seq-len", "32", "--json"});
    const Outcome outcome = run(source);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.status == 0 ? Json::parse(outcome.output).at("loss").as_double() : 0;
  }
};

TEST_F(Lora, TrainsExportsMergesAndEvaluates) {
  const Outcome trained = run(train({"--export.format=peft", "--export.folder=adapter"}));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_THAT(trained.output, AllOf(HasSubstr("lora: 14 layers"), HasSubstr("high precision + lora")));
  EXPECT_TRUE(fs::exists(work() / "adapter/adapter_config.json"));
  EXPECT_FALSE(fs::exists(work() / "adapter/config.json"));
  for (const char* made : {"adapter", "again"}) {
    if (made == std::string("again"))
      expect_ok({"export", "--checkpoint", "run", "--format", "peft", "--output", made});
    EXPECT_THAT(read_file(work() / made / "README.md"),
                AllOf(HasSubstr("base_model: \"base\"\nbase_model_relation: adapter\nlibrary_name: peft\n"),
                      HasSubstr("| Base model | base |"), HasSubstr("| Trained | LoRA of rank 4, alpha 8 |"),
                      HasSubstr("| Validation | loss ")));
  }
  const double base = loss({"--model", "base"}), beside = loss({"--model", "base", "--adapter", "adapter"});
  EXPECT_LT(beside, base) << "the run has learned something";
  EXPECT_DOUBLE_EQ(loss({"--model", "run"}), beside) << "a run folder of adapters finds its base";
  EXPECT_NEAR(loss({"--model", "run", "--dtype", "bf16"}), beside, 0.05);
  const Outcome merged = run({"merge-lora", "--model", "base", "--adapter", "adapter", "--output", "merged", "--json"});
  ASSERT_EQ(merged.status, 0) << merged.errors;
  EXPECT_EQ(Json::parse(merged.output).at("output").as_string(), "merged");
  EXPECT_NEAR(loss({"--model", "merged"}), beside, 1e-5);
  EXPECT_THAT(read_file(work() / "merged/README.md"),
              AllOf(HasSubstr("base_model: \"base\"\nbase_model_relation: finetune\n"),
                    HasSubstr("| Trained | LoRA of rank 4, alpha 8 |")));
  expect_ok({"export", "--checkpoint", "run", "--output", "exported"});
  EXPECT_EQ(read_file(work() / "exported/model.safetensors"), read_file(work() / "merged/model.safetensors"));
  const std::vector<std::string> adapters{"export", "--checkpoint", "run",   "--format",
                                          "peft",   "--output",     "again", "--json"};
  std::vector<std::string> quantized = adapters;
  quantized.insert(quantized.end(), {"--scheme", "int8_weight_only"});
  const Outcome refused = run(quantized), again = run(adapters);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("--scheme is for whole models, and --format peft writes adapters alone"));
  ASSERT_EQ(again.status, 0) << again.errors;
  EXPECT_EQ(Json::parse(again.output).at("adapted_layers").as_int(), 14);
  EXPECT_EQ(read_file(work() / "again/adapter_model.safetensors"),
            read_file(work() / "adapter/adapter_model.safetensors"));
  std::vector<std::string> with = generate("base");
  with.insert(with.end(), {"--adapter", "adapter"});
  EXPECT_EQ(continuation(run(with)), continuation(run(generate("run"))));

  // Several adapters over one base.
  const Outcome both = run({"eval", "--model", "base", "--adapter", "adapter", "again", "--data", "held_out.txt",
                            "--seq-len", "32", "--json"});
  ASSERT_EQ(both.status, 0) << both.errors;
  const Json reports = Json::parse(both.output);
  ASSERT_EQ(reports.as_array().size(), 2u);
  EXPECT_EQ(reports.as_array()[0].at("loss"), reports.as_array()[1].at("loss"));
  EXPECT_EQ(reports.as_array()[1].at("adapter").as_string(), "again");
}

TEST_F(Lora, TheBaseIsFoundFromAnyFolder) {
  expect_ok(train());
  std::vector<std::string> here = generate("run");
  std::vector<std::string> there = here;
  for (std::string& word : there)
    if (word == "run") word = (fs::absolute(work()) / "run").string();
  const testing::TempDir elsewhere;
  const Outcome outcome = testing::run_program(elsewhere.path(), there);
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(continuation(outcome), continuation(run(here)));
  fs::rename(work() / "base", work() / "gone");
  const Outcome missing = testing::run_program(elsewhere.path(), there);
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.errors, HasSubstr("holds adapters over the model in base, which does not exist here"));
}

TEST_F(Lora, AQuantizedBaseIsNamedWhereverTheRunIs) {
  const Outcome trained = run(train({"--lora.base=nf4", "--export.format=peft", "--export.folder=adapter"}));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_THAT(trained.output, AllOf(HasSubstr("recipe: f32 (recipe bf16, no low precision)\n"),
                                    HasSubstr("  nf4 base + lora r4\n"), Not(HasSubstr("high precision + lora"))));
  EXPECT_THAT(run({"inspect", "run"}).output, HasSubstr("adapters         nf4 base + lora r4\n"));
  EXPECT_THAT(run({"inspect", "run/checkpoints/step-30"}).output,
              HasSubstr("adapters         nf4 base + lora r4; the model under them is not stored here\n"));
  expect_ok({"report", "run"});
  EXPECT_THAT(read_file(work() / "run/report.html"), HasSubstr(R"(["Adapters","nf4 base + lora r4, alpha 8.0"])"));
}

TEST_F(Lora, CodesOfAQuantizedFolderAreNamed) {
  expect_ok({"quantize", "--model", "base", "--scheme", "int4_weight_only_g32", "--format", "compressed-tensors",
             "--output", "few"});
  const Outcome trained = run(train({"--model.path=few", "--lora.base=stored"}));
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_THAT(trained.output, HasSubstr("  i4 g32 base + lora r4\n"));
  EXPECT_THAT(run({"inspect", "run"}).output, HasSubstr("adapters         base as stored + lora r4\n"));
}

TEST_F(Lora, MergingIntoOtherWeightsThanThoseOfTrainingIsSaid) {
  expect_ok(train({"--export.format=peft", "--export.folder=adapter"}));
  const auto merge = [&](const std::string& model) {
    const Outcome done = run({"merge-lora", "--model", model, "--adapter", "adapter", "--output", "out"});
    EXPECT_EQ(done.status, 0) << done.errors;
    return done.errors;
  };
  const std::string said = "the adapter in adapter was trained over other weights than those in ";
  EXPECT_THAT(merge("base"), Not(HasSubstr(said)));
  fs::copy(work() / "base", work() / "changed", fs::copy_options::recursive);
  EXPECT_THAT(merge("changed"), Not(HasSubstr(said)));
  // One bit of the last weight.
  std::string weights = read_file(work() / "changed/model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  testing::write_file(work() / "changed/model.safetensors", weights);
  EXPECT_THAT(merge("changed"), HasSubstr(said + "changed"));
  // The same from a checkpoint's adapters.
  expect_ok({"export", "--checkpoint", "run", "--format", "peft", "--output", "adapter"});
  EXPECT_THAT(merge("base"), Not(HasSubstr(said)));
  EXPECT_THAT(merge("changed"), HasSubstr(said + "changed"));
}

TEST_F(Lora, ResumesExactlyFromCheckpointsOfAdaptersAlone) {
  expect_ok(train());
  expect_ok(train({"--run.folder=two", "--training.steps=10"}));
  for (const char* file : {"run", "two"}) {
    std::uintmax_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(work() / file / "checkpoints/step-10"))
      bytes += entry.is_regular_file() ? entry.file_size() : 0;
    EXPECT_LT(bytes, fs::file_size(work() / "base/model.safetensors"));
  }
  const Outcome resumed = run(train({"--run.folder=two"}));
  ASSERT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_THAT(resumed.output, HasSubstr("resumed from"));
  for (const char* folder : {"run", "two"})
    expect_ok({"export", "--checkpoint", folder, "--format", "peft", "--output", std::string(folder) + "-adapter"});
  EXPECT_EQ(read_file(work() / "run-adapter/adapter_model.safetensors"),
            read_file(work() / "two-adapter/adapter_model.safetensors"));

  // The same adapters over other weights are refused.
  write_config(R"({"preset": "tiny", "vocab_size": 280})");
  expect_ok(
      {"train", "run.json", "--run.folder=first", "--training.seed=7", "--export.format=hf", "--export.folder=other"});
  write_config(R"({"path": "other"})", "");
  const Outcome refused = run(train({"--training.steps=40"}));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("were trained over another base"));
}

TEST_F(Lora, TheBaseMayBeKeptInFewBits) {
  for (const std::string form : {"nf4", "float8"}) {
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), {"--lora.base=" + form, "--lora.dropout=0"});
      return train(std::move(more));
    };
    const Outcome trained =
        run(with({"--run.folder=" + form, "--export.format=hf", "--export.folder=" + form + "-model"}));
    ASSERT_EQ(trained.status, 0) << trained.errors;
    expect_ok(with({"--run.folder=" + form + "-two", "--training.steps=10"}));
    expect_ok(with({"--run.folder=" + form + "-two", "--export.format=hf", "--export.folder=" + form + "-again"}));
    EXPECT_EQ(read_file(work() / (form + "-model") / "model.safetensors"),
              read_file(work() / (form + "-again") / "model.safetensors"));
    EXPECT_NEAR(loss({"--model", form + "-model"}), loss({"--model", form}), 1e-5) << "of what was trained";
  }
  expect_ok(train({"--run.folder=dense", "--lora.dropout=0", "--export.format=hf", "--export.folder=dense-model"}));
  EXPECT_NE(read_file(work() / "dense-model/model.safetensors"), read_file(work() / "nf4-model/model.safetensors"));
  EXPECT_NEAR(loss({"--model", "nf4-model"}), loss({"--model", "dense-model"}), 0.1);
}

// The codes become values, which take the update: the same as over a folder of those values.
TEST_F(Lora, MergingIntoAQuantizedModelKeepsTheUpdate) {
  expect_ok(train({"--export.format=peft", "--export.folder=adapter"}));
  for (const std::string format : {"compressed-tensors", "torchao", "gguf"}) {
    SCOPED_TRACE(format);
    const std::string scheme = format == "gguf" ? "q8_0" : "int8_weight_only";
    expect_ok({"quantize", "--model", "base", "--scheme", scheme, "--format", format, "--output", format});
    expect_ok({"export", "--model", format, "--output", format + "-dense"});
    const auto merged = [&](const std::string& model) {
      expect_ok({"merge-lora", "--model", model, "--adapter", "adapter", "--output", model + "-merged"});
      return read_file(work() / (model + "-merged") / "model.safetensors");
    };
    const std::string of_codes = merged(format);
    EXPECT_EQ(of_codes == merged(format + "-dense"), true);
    EXPECT_EQ(of_codes == read_file(work() / (format + "-dense") / "model.safetensors"), false);
  }
}

// Over codes or over the values that they stand for: the same numbers, bit for bit.
TEST_F(Lora, AQuantizedFolderIsABaseInItsOwnCodes) {
  struct Folder {
    std::string format, scheme;
  };
  for (const Folder& folder : {Folder{"compressed-tensors", "int4_weight_only_g32_asym"},
                               Folder{"torchao", "int8_weight_only"}, Folder{"gguf", "q4_0"}}) {
    SCOPED_TRACE(folder.format);
    const std::string codes = folder.format, dense = codes + "-dense";
    expect_ok({"quantize", "--model", "base", "--scheme", folder.scheme, "--format", folder.format, "--output", codes});
    expect_ok({"export", "--model", codes, "--output", dense});
    const auto adapter_over = [&](const std::string& base, const std::string& form) {
      const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"--model.path=" + base, "--lora.base=" + form, "--run.folder=" + base + "-run",
                                   "--export.format=peft", "--export.folder=" + base + "-adapter"});
        return train(std::move(more));
      };
      expect_ok(with({"--training.steps=5"}));
      expect_ok(with({"--training.steps=10"}));  // continues over the same base
      return read_file(work() / (base + "-adapter") / "adapter_model.safetensors");
    };
    EXPECT_EQ(adapter_over(codes, "stored") == adapter_over(dense, "dense"), true);
    EXPECT_EQ(loss({"--model", codes + "-run"}), loss({"--model", dense + "-run"}));
    EXPECT_EQ(read_json(codes + "-adapter/adapter_config.json").at("base_model_name_or_path").as_string(), codes);
  }
  // A GGUF file alone.
  fs::create_directory(work() / "alone");
  fs::copy_file(work() / "gguf/model.gguf", work() / "alone/model.gguf");
  expect_ok(train({"--model.path=alone", "--data.tokenizer=gguf", "--lora.base=stored", "--run.folder=alone-run",
                   "--training.steps=2"}));
  EXPECT_THAT(run(train({"--lora.base=stored"})).errors,
              HasSubstr("lora.base: stored, but the weights in base are not quantized"));
  const Outcome whole = run({"train", "run.json", "--model.path=torchao", "--run.folder=whole"});
  EXPECT_EQ(whole.status, 2);
  EXPECT_THAT(whole.errors, HasSubstr("torchao holds quantized weights, which only adapters can train"));
}

TEST_F(Lora, MagnitudesAreTrainedResumedExportedAndMerged) {
  const auto with = [&](const std::string& folder, std::vector<std::string> more) {
    more.insert(more.begin(), {"--lora.dora=true", "--lora.base=nf4", "--lora.dropout=0", "--run.folder=" + folder,
                               "--export.format=peft", "--export.folder=" + folder + "-adapter"});
    return train(std::move(more));
  };
  expect_ok(with("one", {}));
  expect_ok(with("two", {"--training.steps=10"}));
  expect_ok(with("two", {}));
  EXPECT_EQ(read_file(work() / "one-adapter/adapter_model.safetensors") ==
                read_file(work() / "two-adapter/adapter_model.safetensors"),
            true);
  EXPECT_TRUE(read_json("one-adapter/adapter_config.json").at("use_dora").as_bool());
  expect_ok({"merge-lora", "--model", "one", "--output", "merged"});
  EXPECT_NEAR(loss({"--model", "merged"}), loss({"--model", "one"}), 1e-5);
  const Outcome refused = run(train({"--lora.dora=true", "--recipe.name=qat_int4_weight_only", "--lora.dropout=0"}));
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.errors, HasSubstr("lora.dora"));
}

TEST_F(Lora, ExpertsHaveAdapters) {
  write_config(R"({"preset": "tiny-moe", "vocab_size": 280})");
  expect_ok({"train", "run.json", "--run.folder=first", "--export.format=hf", "--export.folder=experts"});
  write_config(R"({"path": "experts"})", "");
  const auto with = [&](const std::string& folder, std::vector<std::string> more) {
    more.insert(more.begin(), {"--lora.dropout=0", "--run.folder=" + folder, "--export.format=peft",
                               "--export.folder=" + folder + "-adapter"});
    return train(std::move(more));
  };
  expect_ok(with("one", {}));
  expect_ok(with("two", {"--training.steps=10"}));
  expect_ok(with("two", {}));
  EXPECT_EQ(read_file(work() / "one-adapter/adapter_model.safetensors") ==
                read_file(work() / "two-adapter/adapter_model.safetensors"),
            true);
  const double beside = loss({"--model", "experts", "--adapter", "one-adapter"});
  EXPECT_LT(beside, loss({"--model", "experts"}));
  EXPECT_DOUBLE_EQ(loss({"--model", "one"}), beside);
  expect_ok({"merge-lora", "--model", "experts", "--adapter", "one-adapter", "--output", "merged"});
  EXPECT_NEAR(loss({"--model", "merged"}), beside, 1e-4);
  const Outcome refused = run(with("qat", {"--recipe.name=qat_int4_weight_only"}));
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.errors, HasSubstr("set lora.quantize_merged to false"));
  expect_ok(with("qat", {"--recipe.name=qat_int4_weight_only", "--lora.quantize_merged=false"}));
}

TEST_F(Lora, BadConfigsAreNamed) {
  const auto refusal = [&](std::vector<std::string> more) {
    const Outcome outcome = run(train(std::move(more)));
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    return outcome.errors;
  };
  EXPECT_THAT(refusal({"--lora.targets=w1"}), HasSubstr("lora.targets: 'w1' matches none"));
  EXPECT_THAT(refusal({"--lora.rank=1000"}), HasSubstr("lora.rank: 1000 exceeds"));
  EXPECT_THAT(refusal({"--lora.dropout=1"}), HasSubstr("lora.dropout"));
  EXPECT_THAT(refusal({"--recipe.name=auto"}), HasSubstr("does not support lora; name a recipe"));
  EXPECT_THAT(run({"train", "run.json", "--export.format=peft"}).errors, HasSubstr("the run has no adapters"));
  const Outcome missing = run({"eval", "--model", "base", "--adapter", "base", "--data", "held_out.txt"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.errors, HasSubstr("expected an adapter folder, found a model folder"));
}

}  // namespace
}  // namespace quench
