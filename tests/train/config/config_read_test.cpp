#include <gmock/gmock.h>

#include <set>

#include "config_testing.h"
#include "core/system/nearest_name.h"
#include "tests/testing.h"
#include "train/config/fields/field.h"
#include "train/config/read_config.h"
#include "train/config/section_enum_names.h"
#include "train/config/value_codec.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::issues;
using testing::minimal;
using testing::parse;

TEST(ConfigRead, DefaultsApplyWhereTheFileIsSilent) {
  const RunConfig config = minimal();
  EXPECT_EQ(config.model.preset, "tiny");
  ASSERT_EQ(config.data.train.size(), 1u);
  EXPECT_EQ(config.data.train[0].path, "a.bin");
  EXPECT_EQ(config.data.train[0].weight, std::nullopt);
  EXPECT_EQ(config.training.steps, 100);
  EXPECT_EQ(config.training.global_batch_size, std::nullopt);
  EXPECT_EQ(config.training.dtype, DType::bf16);
  EXPECT_EQ(config.training.master_dtype, DType::f32);
  EXPECT_EQ(config.optimizer.betas, (std::array<double, 2>{0.9, 0.95}));
  EXPECT_EQ(config.recipe.name, "bf16");
  EXPECT_FALSE(config.export_model.has_value());
}

TEST(ConfigRead, EverySectionOfADocumentedExample) {
  const RunConfig config = parse(R"({
    "model":     {"preset": "llama-3.2-1b"},            // or {"path": "hf_dir"} or inline HF config fields
    "data":      {"train": ["shards/train-*.bin"], "validation": ["shards/val.bin"], "seq_len": 2048, "format": "auto", "packing": true},
    "training":  {"steps": 1000, "micro_batch_size": 4, "global_batch_size": 64, "max_norm": 1.0, "seed": 42, "dtype": "bf16", "master_dtype": "f32", "activation_checkpoint": "none", "deterministic": false},
    "optimizer": {"name": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "state": "f32"},
    "lr_schedule": {"name": "cosine", "warmup_steps": 100, "min_lr_ratio": 0.1},
    "recipe":    {"name": "float8_rowwise", "filter": {"exclude": ["lm_head"]}},
    "parallel":  {"shard": -1, "replicate": 1, "expert": 1, "reshard_after_forward": true, "float8_all_gather": true},
    "checkpoint":{"folder": "runs/x/checkpoints", "interval": 500, "keep_latest": 3, "async": true, "resume": "auto"},
    "metrics":   {"log_every": 10, "tensorboard": true, "jsonl": true},
    "evaluation":{"interval": 500, "steps": 50},
    "export":    {"format": "hf", "folder": "models/x"}
  })");
  EXPECT_EQ(config.training.global_batch_size, 64);
  EXPECT_EQ(config.recipe.name, "float8_rowwise");
  EXPECT_EQ(config.recipe.filter.exclude, std::vector<std::string>{"lm_head"});
  EXPECT_EQ(config.checkpoint.folder, "runs/x/checkpoints");
  ASSERT_TRUE(config.export_model.has_value());
  EXPECT_EQ(config.export_model->folder, "models/x");
  EXPECT_EQ(config.evaluation.interval, 500);
}

TEST(ConfigRead, DerivedValuesFollowTheRunsName) {
  const RunConfig by_file = parse_run_config(testing::kMinimal, "configs/shakespeare.json", {}, testing::kNoFiles);
  EXPECT_EQ(by_file.run.name, "shakespeare");
  EXPECT_EQ(by_file.run.folder, "runs/shakespeare");
  EXPECT_EQ(by_file.checkpoint.folder, "runs/shakespeare/checkpoints");
  EXPECT_EQ(by_file.metrics.folder, "runs/shakespeare/metrics");
  EXPECT_EQ(by_file.data.cache, "runs/shakespeare/cache");

  const RunConfig named = minimal({"--run.name=x", "--metrics.folder=elsewhere"});
  EXPECT_EQ(named.checkpoint.folder, "runs/x/checkpoints");
  EXPECT_EQ(named.metrics.folder, "elsewhere");
}

TEST(ConfigRead, ModelFolderLoadsAndPresetStartsAtRandom) {
  EXPECT_EQ(minimal().model.init, ModelSection::Init::random);
  EXPECT_EQ(minimal({"~model.preset", "--model.path=somewhere"}).model.init, ModelSection::Init::load);
  EXPECT_EQ(minimal({"~model.preset", "--model.path=somewhere", "--model.init=random"}).model.init,
            ModelSection::Init::random);
}

TEST(ConfigRead, EvaluationIsOffWithoutValidationData) {
  EXPECT_EQ(minimal().evaluation.interval, 0);
  EXPECT_EQ(minimal({"--data.validation=v.bin"}).evaluation.interval, 500);
  EXPECT_THAT(testing::complaint({"--evaluation.interval=10"}),
              HasSubstr("data.validation and evaluation.prompts are empty"));
  EXPECT_EQ(minimal({R"(--evaluation.prompts=["once"])"}).evaluation.interval, 500) << "there are texts to continue";
  EXPECT_EQ(minimal({R"(--evaluation.prompts=["once"])", "--evaluation.interval=10"}).evaluation.interval, 10);
}

// Defaults switch off where they cannot apply; explicit requests are errors.
TEST(ConfigRead, EvaluationsOfAnEmbeddedConfigNeedNoValidationData) {
  const auto load = [](const std::vector<std::string>& overrides) {
    return load_run_config("finetune_llama-3.2-1b", overrides, testing::kNoFiles);
  };
  EXPECT_EQ(load({}).evaluation.interval, 100);
  EXPECT_EQ(load({"--unset=data.validation"}).evaluation.interval, 0);
  EXPECT_EQ(load({"--data.train=my.jsonl", "--data.validation=held.jsonl"}).evaluation.interval, 100);
  EXPECT_THROW((void)load({"--unset=data.validation", "--evaluation.interval=50"}), ConfigError);
  // Held-out data belong to the training data that they were taken from.
  const RunConfig other = load({"--data.train=my.jsonl"});
  EXPECT_TRUE(other.data.validation.empty());
  EXPECT_EQ(other.evaluation.interval, 0);
  EXPECT_THROW((void)load({"--data.train=my.jsonl", "--evaluation.interval=50"}), ConfigError);
}

TEST(ConfigRead, DataSourcesMayCarryWeights) {
  const RunConfig config = parse(R"({"model": {"preset": "tiny"}, "training": {"steps": 1}, "data": {"seq_len": 8,
    "train": ["a.bin", {"path": "b-*.bin", "weight": 2.5}]}})");
  EXPECT_EQ(config.data.train, (std::vector<DataSource>{{"a.bin"}, {"b-*.bin", 2.5}}));
}

TEST(ConfigRead, PatternsKeepTheirOrder) {
  const RunConfig config = minimal({R"(--lora.rank_pattern={"q_proj": 8, "*.layers.0.*": 2})"});
  using Patterns = std::vector<std::pair<std::string, std::int64_t>>;
  EXPECT_EQ(config.lora->rank_pattern, (Patterns{{"q_proj", 8}, {"*.layers.0.*", 2}}));
  EXPECT_EQ(parse_run_config(to_json(config).dump(), "again.json", {}, testing::kNoFiles), config);
}

TEST(ConfigRead, ResumeTakesWordsStepsAndFolders) {
  EXPECT_EQ(minimal({"--checkpoint.resume=never"}).checkpoint.resume, (ResumeFrom{ResumeFrom::Mode::never, 0, ""}));
  EXPECT_EQ(minimal({"--checkpoint.resume=500"}).checkpoint.resume, (ResumeFrom{ResumeFrom::Mode::step, 500, ""}));
  EXPECT_EQ(minimal({"--checkpoint.resume=runs/a"}).checkpoint.resume,
            (ResumeFrom{ResumeFrom::Mode::path, 0, "runs/a"}));
}

TEST(ConfigRead, UnsetWordsOfDtypes) {
  EXPECT_EQ(minimal({"--training.master_dtype=none"}).training.master_dtype, std::nullopt);
  EXPECT_EQ(minimal().training.grad_dtype, std::nullopt);
  EXPECT_EQ(minimal({"--training.grad_dtype=bf16"}).training.grad_dtype, DType::bf16);
}

TEST(ConfigRead, ResolvedConfigReadsBackEqual) {
  const std::vector<std::vector<std::string>> variants = {
      {},
      {"--export.format=hf", "--data.validation=v.bin", "--checkpoint.resume=12"},
      {"--lora.rank=4", R"(--lora.rank_pattern={"down_proj": 8})", R"(--lora.alpha_pattern={"*.0.*": 0.5})"},
      {"--training.epochs=0.5", "~training.steps", "--training.master_dtype=none", "--training.grad_dtype=f32"},
      {"--lr_schedule.name=wsd", "--data.train=[\"a\", {\"path\": \"b\", \"weight\": 0.25}]"},
      {"--lr_schedule.name=wsd", "--lr_schedule.decay_steps=10", "--recipe.filter.include=*.mlp.*,*.self_attn.*"},
      {"--model.num_hidden_layers=3", "--model.rope_scaling={\"rope_type\": \"linear\", \"factor\": 2.0}"},
      {"--optimizer.lr=1e-300", "--optimizer.eps=4.9e-324", "--training.seed=9007199254740991"},
  };
  for (const auto& overrides : variants) {
    const RunConfig config = minimal(overrides);
    const std::string text = to_json(config).dump(2);
    const RunConfig again = parse_run_config(text, "another-name.json", {}, testing::kNoFiles);
    EXPECT_EQ(config, again) << text;
    EXPECT_EQ(text, to_json(again).dump(2));
  }
}

TEST(ConfigRead, ResolvedConfigHoldsEveryKeyInTableOrder) {
  const Json document = to_json(minimal());
  std::vector<std::string> sections;
  for (const auto& [name, value] : document.as_object()) sections.push_back(name);
  std::vector<std::string> expected = section_names();
  std::erase_if(expected, [](const std::string& name) { return is_optional_section(name); });
  EXPECT_EQ(sections, expected);
  for (const Field& field : field_table()) {
    if (field.architecture || is_optional_section(field.section())) continue;
    const Json* object = &document.at(field.section());
    std::string_view key = field.key();  // "filter.include": in an object of its own
    for (std::size_t dot = key.find('.'); dot != std::string_view::npos && object != nullptr; dot = key.find('.')) {
      object = object->find(key.substr(0, dot));
      key.remove_prefix(dot + 1);
    }
    ASSERT_NE(object, nullptr) << field.path;
    EXPECT_NE(object->find(key), nullptr) << field.path;
  }
}

TEST(ConfigRead, OverridesLeaveNoTraceInTheResolvedConfig) {
  EXPECT_EQ(to_json(minimal({"--training.steps=100"})), to_json(minimal()));
}

TEST(ConfigTable, RowsAreWellFormed) {
  std::set<std::string> paths;
  for (const Field& field : field_table()) {
    EXPECT_TRUE(paths.insert(field.path).second) << field.path << " twice";
    EXPECT_EQ(find_field(field.path), &field);
    EXPECT_FALSE(field.help.empty()) << field.path;
    EXPECT_EQ(field.help.back(), '.') << field.path;
    EXPECT_FALSE(field.type.empty()) << field.path;
    EXPECT_NE(std::find(section_names().begin(), section_names().end(), field.section()), section_names().end());
  }
  EXPECT_EQ(find_field("training.nothing"), nullptr);
  for (const std::string& section : section_names()) EXPECT_FALSE(section_help(section).empty()) << section;
}

TEST(ConfigTable, DefaultsPassTheirOwnChecks) {
  for (const Field& field : field_table()) {
    RunConfig config = default_config();
    const Json value = field.write(config);
    if (value.is_null()) {
      EXPECT_TRUE(field.nullable) << field.path;
      continue;
    }
    const auto error = field.read(value, config);
    EXPECT_FALSE(error.has_value()) << field.path << ": " << error->reason;
    EXPECT_EQ(config, default_config()) << field.path;
  }
}

TEST(ConfigTable, EnumNamesAreUsedBothWays) {
  for (const auto& [value, name] : EnumNames<NonfinitePolicy>::values) {
    EXPECT_EQ(Codec<NonfinitePolicy>::write(value, {}), Json(name));
    NonfinitePolicy read{};
    EXPECT_FALSE(Codec<NonfinitePolicy>::read(Json(name), {}, read).has_value());
    EXPECT_EQ(read, value);
  }
}

TEST(ForeignKeys, NamesOfAdapterKeysLeadToOurs) {
  for (const auto& [theirs, ours] : {std::pair{"r", "rank"}, {"target_modules", "targets"}, {"use_dora", "dora"}}) {
    const ReadResult result = read_config(Json::parse(fmt::format(R"({{"lora": {{"{}": 1}}}})", theirs)), {});
    ASSERT_FALSE(result.issues.empty()) << theirs;
    EXPECT_EQ(result.issues[0].suggestion, std::string("lora.") + ours);
  }
}

TEST(NearestName, DistanceCountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("steps", "stpes"), 1u);
  EXPECT_EQ(edit_distance("steps", "step"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);  // restricted: no edit between swapped neighbours
}

TEST(NearestName, PrefersTheNearestAndRefusesTheFar) {
  const std::vector<std::string> names = {"warmup_steps", "decay_steps", "name"};
  EXPECT_EQ(nearest_name("warmup_step", names), "warmup_steps");
  EXPECT_EQ(nearest_name("warmup-steps", names), "warmup_steps");
  EXPECT_EQ(nearest_name("NAME", names), "name");
  EXPECT_EQ(nearest_name("completely_else", names), "");
  EXPECT_EQ(nearest_name("warmup", names), "warmup_steps");
  EXPECT_EQ(nearest_name("", names), "");
  const std::vector<std::string> recipes = {"qat_int8", "qat_int8dyn_int4", "qat_int4_weight_only"};
  EXPECT_EQ(nearest_name("qat_int4", recipes), "qat_int4_weight_only");
  EXPECT_EQ(nearest_name("int8dyn_int4", recipes), "qat_int8dyn_int4");
  EXPECT_EQ(nearest_name("qat_int7", recipes), "qat_int8");
  EXPECT_EQ(nearest_name(std::string(100000, 'x'), names), "");
}

}  // namespace
}  // namespace quench
