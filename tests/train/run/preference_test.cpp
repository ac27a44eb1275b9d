// Runs with section preference.

#include <gmock/gmock.h>

#include "tests/train/expect_error.h"
#include "tests/train/model_folder/golden_model.h"
#include "tests/train/run/preference_fixture.h"
#include "tests/train/run/same_tensors.h"
#include "train/model_folder/model_folder.h"
#include "train/objectives/preference/run/reference_setup.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::expect_same_tensors;
using testing::kPreferenceLosses;
using testing::PreferenceRun;

std::vector<Json> records(const fs::path& file) {
  std::vector<Json> all;
  std::istringstream lines(testing::read_file(file));
  for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
  return all;
}

double metric(const Json& record, const char* name) {
  return record.at("objective").at(name).as_double();
}

TEST(Preference, EveryLossResumesBitForBit) {
  const PreferenceRun tiny;
  for (const std::string loss : kPreferenceLosses)
    for (const bool adapters : {false, true}) {
      std::vector<std::string> more;
      if (adapters) more = {"--lora.rank=4", "--lora.dropout=0.1"};
      const std::string whole = loss + (adapters ? "-lora" : ""), rest = whole + "-rest";
      SCOPED_TRACE(whole);
      tiny.run(tiny.preference_config(whole, loss, more));
      more.push_back("--checkpoint.resume=" + tiny.checkpoint(whole, 4).string());
      more.push_back("--data.cache=" + (tiny.folder(whole) / "cache").string());  // the initial model's figures
      tiny.run(tiny.preference_config(rest, loss, more));
      const std::vector<std::string> losses = tiny.losses(whole);
      ASSERT_EQ(losses.size(), 8u);
      EXPECT_EQ(tiny.losses(rest), std::vector<std::string>(losses.begin() + 4, losses.end()));
      expect_same_tensors(tiny.checkpoint(rest, 8), tiny.checkpoint(whole, 8));
    }
}

TEST(Preference, AccuracyRisesUnderEveryLoss) {
  const PreferenceRun tiny;
  for (const std::string loss : kPreferenceLosses) {
    tiny.run(tiny.preference_config(loss, loss, {"--training.steps=60", "--checkpoint.interval=0"}));
    const std::vector<Json> steps = records(tiny.folder(loss) / "metrics" / "metrics.jsonl");
    ASSERT_EQ(steps.size(), 60u);
    EXPECT_GT(metric(steps.back(), "rewards/accuracies"), 0.95) << loss;
    EXPECT_GT(metric(steps.back(), "rewards/margins"), metric(steps[1], "rewards/margins")) << loss;
    EXPECT_LT(steps.back().at("loss").as_double(), steps[0].at("loss").as_double()) << loss;
  }
}

// Adapters over a base: three names of one model.
TEST(Preference, BaseInitialAndFolderAreTheSameReference) {
  const PreferenceRun tiny;
  const std::vector<std::string> adapters = {"--lora.rank=4"};
  tiny.run(tiny.config("base-model", {"--training.steps=1", "--optimizer.lr=1e-20", "--optimizer.weight_decay=0",
                                      "--export.format=hf", "--export.folder=" + tiny.folder("exported").string()}));
  std::vector<std::vector<std::string>> losses;
  for (const std::string reference : {"auto", "base", "initial", "folder"}) {
    std::vector<std::string> more = adapters;
    more.push_back("--preference.reference=" + (reference == "folder" ? tiny.folder("exported").string() : reference));
    tiny.run(tiny.preference_config(reference, "dpo", more));
    losses.push_back(tiny.losses(reference));
  }
  EXPECT_EQ(losses[1], losses[0]);
  // Once, in batches of other rows, or in every step.
  ASSERT_EQ(losses[2].size(), losses[0].size());
  EXPECT_EQ(losses[3], losses[2]);
  for (std::size_t i = 0; i < losses[0].size(); ++i) {
    const auto value = [&](const std::string& text) { return std::stod(text.substr(text.find(':') + 1)); };
    EXPECT_NEAR(value(losses[2][i]), value(losses[0][i]), 1e-6);
  }
}

// Under RoPE that depends on the length of a sequence, the reference's figures come from batches of other rows.
TEST(Preference, RewardsAgainstTheInitialModelAreZeroUnderLengthDependentRope) {
  const PreferenceRun tiny;
  const std::vector<std::vector<std::string>> models{
      {"--model.max_position_embeddings=4", R"(--model.rope_scaling={"rope_type": "dynamic", "factor": 8.0})"},
      {"--model.model_type=phi3", "--model.original_max_position_embeddings=5",
       R"(--model.rope_scaling={"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 3, 9, 27]})"}};
  for (const std::vector<std::string>& model : models)
    for (const std::string loss : {"dpo", "kto"}) {
      const std::string name = loss + std::to_string(&model - models.data());
      SCOPED_TRACE(name);
      std::vector<std::string> more = model;
      more.insert(more.end(), {"--preference.reference=initial", "--optimizer.lr=1e-30", "--optimizer.weight_decay=0",
                               "--training.dtype=f32"});
      tiny.run(tiny.preference_config(name, loss, more));
      for (const Json& record : records(tiny.folder(name) / "metrics" / "metrics.jsonl")) {
        EXPECT_NEAR(metric(record, "rewards/chosen"), 0, 1e-5);
        EXPECT_NEAR(metric(record, "rewards/rejected"), 0, 1e-5);
      }
    }
}

// Figures stored for one quantization of the frozen weights do not serve another.
TEST(Preference, StoredFiguresBelongToTheWeights) {
  const PreferenceRun tiny;
  for (const std::string base : {"dense", "nf4", "float8"}) {
    tiny.run(tiny.preference_config(base, "dpo",
                                    {"--lora.rank=4", "--lora.base=" + base, "--preference.reference=initial",
                                     "--data.cache=" + tiny.folder("cache").string(), "--training.steps=1"}));
    const Json first = records(tiny.folder(base) / "metrics" / "metrics.jsonl").front();
    EXPECT_NEAR(first.at("loss").as_double(), std::log(2.0), 1e-6) << base;
  }
}

// A resumed run does not change to other weights under the same name.
TEST(Preference, AReferenceThatChangedIsNamedOnResume) {
  const PreferenceRun tiny;
  const auto save = [&](std::uint64_t seed, const std::string& name) {
    ModelSetup setup = build_model(ResolvedConfig(tiny.preference_config("model", "dpo")), Device{});
    setup.model->initialize(seed);
    fs::remove_all(tiny.folder(name));
    save_model_folder(*setup.model, {.folder = tiny.folder(name)}, {.dtype = DType::f32});
    return tiny.folder(name).string();
  };
  const std::string folder = save(9, "reference");
  const auto run = [&](const std::string& reference, const std::string& steps, const std::string& more) {
    std::vector<std::string> all{"--preference.reference=" + reference, "--training.steps=" + steps,
                                 "--checkpoint.interval=2"};
    if (!more.empty()) all.push_back(more);
    tiny.run(tiny.preference_config("run", "dpo", all));
  };
  run(folder, "2", "");
  save(10, "reference");
  testing::expect_error(ErrorCode::bad_config, "preference.reference: weights of hash ", [&] { run(folder, "4", ""); });
  run(save(9, "moved"), "4", "");  // the same weights
  run(folder, "6", "--checkpoint.allow_changes=preference.reference");
}

// Stored figures of the initial model serve a resumed run that changes a free key of the model; those under the earlier
// name are stored again under the current one, which serves such a run.
TEST(Preference, AResumedRunFindsItsStoredFigures) {
  const PreferenceRun tiny;
  ModelSetup setup = build_model(ResolvedConfig(tiny.preference_config("model", "dpo")), Device{});
  setup.model->initialize(9);
  const fs::path model = tiny.folder("model.gguf");
  save_model_folder(*setup.model, {.folder = model},
                    {.dtype = DType::f32, .format = &export_formats().require("gguf", "format")});
  const auto config = [&](const std::string& steps, std::int64_t length) {
    RunConfig of_run = tiny.preference_config("run", "dpo", {"--training.steps=" + steps, "--checkpoint.interval=2"});
    of_run.model = {};
    of_run.model.path = model.string();
    of_run.model.init = ModelSection::Init::load;
    of_run.model.fields.set("max_position_embeddings", length);
    return of_run;
  };
  tiny.run(config("2", 64));
  tiny.run(config("4", 96));
  const RunConfig last = config("6", 64);
  const DataSetup data = open_data(last, resolve_model_config(last.model));
  ValidationCache checks;
  const fs::path cache = last.data.cache, stored = cache / reference_file(last, *data.train, checks);
  ASSERT_TRUE(fs::exists(stored));
  tiny.run(config("8", 96));
}

TEST(Preference, AReferenceMustBeFinite) {
  const PreferenceRun tiny;
  ModelSetup setup = build_model(ResolvedConfig(tiny.preference_config("model", "dpo")), Device{});
  setup.model->initialize(9);
  for (nn::Parameter* parameter : setup.model->parameters())
    if (parameter->name == "model.norm.weight")
      std::fill_n(Tensor(parameter->variable.value()).data<float>(), parameter->numel(), 3e38f);
  save_model_folder(*setup.model, {.folder = tiny.folder("huge")}, {.dtype = DType::f32});
  testing::expect_error(ErrorCode::nonfinite, "preference.reference: the log-probability of an answer (pair", [&] {
    tiny.run(tiny.preference_config("run", "dpo", {"--preference.reference=" + tiny.folder("huge").string()}));
  });
}

TEST(Preference, AReferenceInHostMemoryGivesTheSameBits) {
  const PreferenceRun tiny;
  tiny.run(tiny.config("base-model", {"--training.steps=1", "--export.format=hf",
                                      "--export.folder=" + tiny.folder("exported").string()}));
  for (const std::string offload : {"false", "true"})
    tiny.run(tiny.preference_config(
        offload, "dpo",
        {"--preference.reference=" + tiny.folder("exported").string(), "--preference.offload=" + offload,
         "--data.cache=" + tiny.folder("cache-" + offload).string()}));
  EXPECT_EQ(tiny.losses("true"), tiny.losses("false"));
}

TEST(Preference, WorksWithOtherPrecisions) {
  const PreferenceRun tiny;
  const std::vector<std::vector<std::string>> ways = {
      {"--recipe.name=qat_int8"},
      {"--recipe.name=float8_rowwise", "--recipe.emulate=true", "--recipe.pad=true"},
      {"--lora.rank=4", "--lora.base=nf4", "--training.dtype=bf16"},
      {"--lora.rank=4", "--lora.base=float8"},
      {"--lora.rank=4", "--recipe.name=qat_int8"},
      {"--training.activation_checkpoint=full", "--training.dtype=bf16"}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    SCOPED_TRACE(::testing::PrintToString(ways[i]));
    const std::string name = fmt::format("way{}", i);
    tiny.run(tiny.preference_config(name, "dpo", ways[i]));
    const std::vector<Json> steps = records(tiny.folder(name) / "metrics" / "metrics.jsonl");
    EXPECT_NEAR(steps[0].at("loss").as_double(), std::log(2.0), 0.02);  // near the reference
    EXPECT_LT(steps.back().at("loss").as_double(), steps[0].at("loss").as_double());
  }
}

TEST(Preference, ValidationReportsTheLossAndItsMetrics) {
  const PreferenceRun tiny;
  for (const std::string loss : kPreferenceLosses) {
    tiny.run(
        tiny.preference_config(loss, loss,
                               {R"(--data.validation=[")" + tiny.data("held_out.bin").string() + "\"]",
                                "--evaluation.interval=4", "--evaluation.steps=0", "--training.micro_batch_size=1"}));
    const std::vector<Json> all = records(tiny.folder(loss) / "metrics" / "evaluations.jsonl");
    ASSERT_EQ(all.size(), 2u) << loss;
    for (const char* name : {"loss", "rewards/margins", "rewards/accuracies", "logps/chosen"})
      EXPECT_TRUE(all.back().at("values").find(name) != nullptr) << loss << " " << name;
    EXPECT_EQ(all.back().at("values").find("perplexity"), nullptr);
  }
}

// The losses of pairs are means over the pairs of a step.
TEST(Preference, TheSplitIntoMicroBatchesDoesNotMatter) {
  const PreferenceRun tiny;
  for (const std::string loss : {"dpo", "ipo", "simpo"}) {
    std::vector<std::vector<std::string>> losses;
    for (const int rows : {1, 2, 4}) {
      const std::string name = fmt::format("{}-{}", loss, rows);
      tiny.run(tiny.preference_config(name, loss,
                                      {fmt::format("--training.micro_batch_size={}", rows), "--training.steps=3"}));
      losses.push_back(tiny.losses(name));
    }
    for (const auto& other : losses)
      for (std::size_t i = 0; i < other.size(); ++i) {
        const auto value = [&](const std::string& text) { return std::stod(text.substr(text.find(':') + 1)); };
        EXPECT_NEAR(value(other[i]), value(losses[0][i]), 1e-5 * value(losses[0][i])) << loss;
      }
  }
}

TEST(Preference, BadInputIsNamed) {
  const PreferenceRun tiny;
  const auto config = [&](const std::string& loss, const std::vector<std::string>& more) {
    return [&tiny, loss, more] { (void)tiny.preference_config("bad", loss, more); };
  };
  using enum ErrorCode;
  testing::expect_error(bad_config, "base is the trained model itself", config("dpo", {"--preference.reference=base"}));
  testing::expect_error(bad_config, "a reference must not be the trained model",
                        config("dpo", {"--preference.reference=" + (tiny.folder("bad") / "export").string()}));
  testing::expect_error(bad_config, "/nowhere does not exist", config("dpo", {"--preference.reference=/nowhere"}));
  testing::expect_error(bad_config, "or one of auto, base, initial",
                        config("dpo", {"--preference.reference=" + tiny.data("pairs.bin").string()}));
  const std::string model = (testing::golden_dir() / "models" / "llama").string();
  for (const std::vector<std::string>& second : {std::vector<std::string>{"--preference.reference=" + model},
                                                 {"--preference=null", "--distill.teacher=" + model}}) {
    std::vector<std::string> more = second;
    more.insert(more.end(), {"--export.format=hf", "--export.overwrite=true", "--export.folder=" + model});
    testing::expect_error(bad_config, "which the export must not touch", config("dpo", more));
  }
  testing::expect_error(bad_config, "has no effect on preference.loss orpo",
                        config("orpo", {"--preference.label_smoothing=0.1"}));
  testing::expect_error(bad_config, "has no effect on preference.loss simpo",
                        config("simpo", {"--preference.reference=base"}));
  testing::expect_error(bad_config, "preference.offload: has no effect", config("dpo", {"--preference.offload=true"}));
  testing::expect_error(bad_config, "preference.offload: has no effect",
                        config("simpo", {"--preference.offload=true"}));
  testing::expect_error(bad_config, "has no effect on preference.loss dpo",
                        config("dpo", {"--preference.desirable_weight=2"}));
  testing::expect_error(bad_config, "data.train_on", config("dpo", {"--data.train_on=all"}));
  testing::expect_error(bad_config, "preference.label_smoothing", config("dpo", {"--preference.label_smoothing=0.5"}));
  // Tokens of another kind.
  testing::expect_error(bad_config, "reads text records of answers",
                        [&] { tiny.run(tiny.config("plain", {"--preference.loss=dpo"})); });
  // Changed weights cannot stand for the initial ones.
  tiny.run(tiny.preference_config("first", "dpo"));
  const auto resume = [&] { tiny.run(tiny.preference_config("first", "dpo", {"--training.steps=9"})); };
  for (const auto& entry : fs::directory_iterator(tiny.folder("first") / "cache"))
    if (std::string bytes = testing::read_file(entry.path()); entry.path().extension() == ".safetensors") {
      testing::write_file(entry.path(), bytes.substr(0, bytes.size() / 2));
      testing::expect_error(corrupt, "; restore it, or remove it, and a run that starts anew computes it", resume);
      bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
      testing::write_file(entry.path(), bytes);
      testing::expect_error(corrupt, "differ from their checksum; restore it", resume);
    }
  fs::remove_all(tiny.folder("first") / "cache");
  testing::expect_error(bad_config, "the weights are those of a later step",
                        [&] { tiny.run(tiny.preference_config("first", "dpo", {"--training.steps=9"})); });
}

// DPOTrainer's losses over 50 steps (tests/reference/make_preferences.py).
TEST(PreferenceCurveGolden, DpoFollowsTrl) {
  const PreferenceRun tiny;
  const Json figures = Json::parse(testing::read_file(testing::reference_dir() / "preferences.json"));
  const Json& curve = figures.at("curve");
  const fs::path shard = tiny.data("curve.bin");
  {
    ShardWriter writer(shard, {.vocab_size = 160, .target_mask = true});
    for (const Json& pair : curve.at("pairs").as_array())
      for (const char* key : {"chosen", "rejected"}) {
        std::vector<std::int32_t> tokens;
        std::vector<std::uint8_t> targets;
        for (const char* part : {"prompt", key})
          for (const Json& id : pair.at(part).as_array()) {
            tokens.push_back(static_cast<std::int32_t>(id.as_int()));
            targets.push_back(part == key ? 1 : 0);
          }
        targets.front() = std::string(key) == "chosen" ? 1 : 0;
        writer.append(tokens, targets);
        writer.end_document();
      }
    writer.finish();
  }
  const std::string text = fmt::format(
      R"({{"model": {{"path": "{}"}}, "data": {{"train": ["{}"], "seq_len": 32, "packing": false, "shuffle": false}},
      "training": {{"steps": {}, "micro_batch_size": {}, "dtype": "f32"}},
      "optimizer": {{"lr": {}, "betas": [0.9, 0.95], "weight_decay": 0}}, "lr_schedule": {{"name": "constant"}},
      "preference": {{"loss": "dpo", "beta": {}}}, "checkpoint": {{"enable": false}},
      "metrics": {{"log_every": 1, "tensorboard": false, "log_level": "warn", "progress": "off"}}}})",
      (testing::golden_dir() / "models" / "llama").string(), shard.string(), curve.at("steps").as_int(),
      curve.at("batch").as_int(), curve.at("lr").as_double(), curve.at("beta").as_double());
  tiny.run(
      parse_run_config(text, "curve.json", std::vector<std::string>{"--run.folder=" + tiny.folder("curve").string()}));
  const std::vector<Json> steps = records(tiny.folder("curve") / "metrics" / "metrics.jsonl");
  const Json::Array& losses = curve.at("losses").as_array();
  ASSERT_EQ(steps.size(), losses.size());
  for (std::size_t i = 0; i < steps.size(); ++i)
    EXPECT_NEAR(steps[i].at("loss").as_double(), losses[i].as_double(), 0.01 * losses[i].as_double())
        << "step " << i + 1;
  EXPECT_NEAR(metric(steps.back(), "rewards/margins"), curve.at("margins").as_array().back().as_double(), 0.02);
  EXPECT_EQ(metric(steps.back(), "rewards/accuracies"), 1.0);
}

}  // namespace
}  // namespace quench
