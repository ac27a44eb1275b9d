#include "train/config/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "config_testing.h"
#include "nn/spec/model_config.h"
#include "tests/testing.h"
#include "train/check/load.h"
#include "train/config/config_schema.h"
#include "train/config/fields/field.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

TEST(ConfigPresets, EveryFileOfTheTreeIsEmbedded) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::source_dir() / "configs")) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    const std::string kind = entry.path().parent_path().filename();
    const EmbeddedConfig* config = find_embedded_config(kind, entry.path().stem().string());
    ASSERT_NE(config, nullptr) << entry.path();
    EXPECT_EQ(config->text, testing::read_file(entry.path())) << entry.path();
  }
  EXPECT_EQ(embedded_configs().size(), files);
  EXPECT_EQ(find_embedded_config("models", "none"), nullptr);
}

TEST(ConfigPresets, EveryRunConfigIsValid) {
  for (const EmbeddedConfig& embedded : embedded_configs()) {
    if (embedded.kind != "runs") continue;
    const RunConfig config = load_run_config(std::string(embedded.name), {}, testing::kNoFiles);
    EXPECT_EQ(config.run.name, embedded.name);
    EXPECT_EQ(parse_run_config(to_json(config).dump(2), "again.json", {}, testing::kNoFiles), config);
  }
}

TEST(ConfigPresets, EveryBenchWorkloadIsValid) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::source_dir() / "bench/workloads")) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    const RunConfig config = load_run_config(entry.path().string(), {}, testing::kNoFiles);
    // What the drivers rely on: a row of metrics.jsonl for each step, one order of batches, nothing else in a step.
    EXPECT_EQ(config.metrics.log_every, 1) << entry.path();
    EXPECT_TRUE(config.metrics.jsonl) << entry.path();
    EXPECT_FALSE(config.data.shuffle) << entry.path();
    EXPECT_FALSE(config.checkpoint.enable) << entry.path();
    EXPECT_EQ(config.evaluation.interval, 0) << entry.path();
  }
  EXPECT_GE(files, 5u);
}

// Parameter counts as published in the model cards and papers, in millions.
TEST(ConfigPresets, ModelsHaveTheirPublishedSizes) {
  std::map<std::string, double> millions = {
      {"llama-2-7b", 6738.4},      {"llama-2-13b", 13015.9},      {"llama-2-70b", 68976.6},
      {"llama-3-8b", 8030.3},      {"llama-3-70b", 70553.7},      {"llama-3.1-8b", 8030.3},
      {"llama-3.1-70b", 70553.7},  {"llama-3.1-405b", 405853.4},  {"llama-3.2-1b", 1235.8},
      {"llama-3.2-3b", 3212.7},    {"llama-3.3-70b", 70553.7},    {"qwen2-0.5b", 494.0},
      {"qwen2-1.5b", 1543.7},      {"qwen2-7b", 7615.6},          {"qwen2-72b", 72706.2},
      {"qwen2.5-0.5b", 494.0},     {"qwen2.5-1.5b", 1543.7},      {"qwen2.5-3b", 3085.9},
      {"qwen2.5-7b", 7615.6},      {"qwen2.5-14b", 14770.0},      {"qwen2.5-32b", 32763.9},
      {"qwen2.5-72b", 72706.2},    {"qwen3-0.6b", 596.0},         {"qwen3-1.7b", 1720.6},
      {"qwen3-4b", 4022.5},        {"qwen3-8b", 8190.7},          {"qwen3-14b", 14768.3},
      {"qwen3-32b", 32762.1},      {"tinyllama-1.1b", 1100.0},    {"smollm2-135m", 134.5},
      {"smollm2-360m", 361.8},     {"smollm2-1.7b", 1711.4},      {"mistral-7b", 7241.7},
      {"mistral-7b-v0.3", 7248.0}, {"llama-110m", 109.5},         {"llama-160m", 162.4},
      {"gemma-2-2b", 2614.3},      {"gemma-2-9b", 9241.7},        {"gemma-3-1b", 999.9},
      {"gemma-3-4b", 3880.3},      {"gemma-3-12b", 11766.0},      {"gemma-3-27b", 27009.3},
      {"olmo-2-1b", 1484.9},       {"olmo-2-7b", 7298.6},         {"olmo-2-13b", 13716.2},
      {"olmo-2-32b", 32234.3},     {"smollm3-3b", 3075.1},        {"granite-3.3-2b", 2533.5},
      {"granite-3.3-8b", 8170.9},  {"mixtral-8x7b", 46702.8},     {"mixtral-8x22b", 140630.1},
      {"qwen3-30b-a3b", 30532.1},  {"qwen3-235b-a22b", 235093.6}, {"deepseek-v3", 671026.4},
      {"llama4-scout", 107769.9},  {"gpt-oss-20b", 20914.8},      {"gpt-oss-120b", 116829.2}};
  millions.merge(std::map<std::string, double>{{"phi-3-mini-4k", 3821.1},
                                               {"phi-3.5-mini", 3821.1},
                                               {"phi-3-medium-4k", 13960.2},
                                               {"phi-4", 14659.5},
                                               {"phi-4-mini", 3836.0},
                                               {"glm-4-9b-0414", 9400.3},
                                               {"glm-4-32b-0414", 32566.1},
                                               {"qwen1.5-moe-a2.7b", 14315.8},
                                               {"qwen2-57b-a14b", 57408.7},
                                               {"mistral-small-3.1-24b", 23572.4}});
  const std::set<std::string_view> ours = {"llama-10m", "tiny",          "tiny-demo",  "tiny-llama-shakespeare",
                                           "tiny-moe",  "tiny-deepseek", "tiny-llama4"};
  std::size_t seen = 0;
  for (const EmbeddedConfig& embedded : embedded_configs()) {
    if (embedded.kind != "models") continue;
    const nn::ModelConfig config = nn::parse_model_config(Json::parse(embedded.text), embedded.name);
    const auto published = millions.find(std::string(embedded.name));
    if (published == millions.end()) {
      EXPECT_TRUE(ours.contains(embedded.name)) << embedded.name << " has no published size here";
      continue;
    }
    ++seen;
    EXPECT_NEAR(static_cast<double>(config.parameter_count()) / 1e6, published->second, 0.06) << embedded.name;
  }
  EXPECT_EQ(seen, millions.size());
}

TEST(ConfigPresets, EveryModelCanBeTrainedByName) {
  for (const EmbeddedConfig& embedded : embedded_configs()) {
    if (embedded.kind != "models") continue;
    const RunConfig config = testing::minimal({fmt::format("--model.preset={}", embedded.name)});
    EXPECT_EQ(config.model.preset, embedded.name);
  }
}

TEST(ConfigPresets, EveryModelCanBePastedIntoTheConfig) {
  for (const EmbeddedConfig& embedded : embedded_configs()) {
    if (embedded.kind != "models") continue;
    Json document = Json::parse(testing::kMinimal);
    document.set("model", Json::parse(embedded.text));
    const RunConfig config = run_config_from_json(document, "pasted.json", {}, testing::kNoFiles);
    Json expected = Json::parse(embedded.text);
    std::erase_if(expected.as_object(), [](const Json::Member& member) { return member.second.is_null(); });
    EXPECT_EQ(model_config(config.model), expected) << embedded.name;
  }
}

TEST(ConfigPresets, ModelFieldsOverrideThePreset) {
  const RunConfig config = testing::minimal({"--model.num_hidden_layers=1"});
  const Json model = model_config(config.model);
  EXPECT_EQ(model.at("num_hidden_layers").as_int(), 1);
  EXPECT_EQ(model.at("hidden_size").as_int(), 64);
}

TEST(ConfigPresets, UnusedValidationDataIsReported) {
  const auto note = [](const std::string& name, std::vector<std::string> overrides) {
    return left_out_validation(name, overrides);
  };
  EXPECT_THAT(note("demo", {"--data.train=mine.txt"}),
              HasSubstr("the validation data [\"shards/val.bin\"] of demo are not used"));
  EXPECT_EQ(note("demo", {}), "");
  EXPECT_EQ(note("demo", {"--data.train=mine.txt", "--data.validation=held_out.txt"}), "");
  EXPECT_EQ(note("demo", {"--data.train=mine.txt", "--data.validation_split=0.1"}), "");
  const testing::TempDir folder;
  testing::write_file(folder / "mine.json", R"({"data": {"validation": ["val.bin"]}})");
  EXPECT_EQ(note((folder / "mine.json").string(), {"--data.train=mine.txt"}), "") << "a file's own data stay";
}

TEST(ConfigSchema, DescribesEveryKey) {
  const Json schema = config_schema();
  for (const Field& field : field_table()) {
    const Json* node = schema.at("properties").find(field.section());
    ASSERT_NE(node, nullptr) << field.path;
    std::string key(field.key());
    for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.')) {
      node = node->at("properties").find(key.substr(0, dot));
      ASSERT_NE(node, nullptr) << field.path;
      key = key.substr(dot + 1);
    }
    const Json* property = node->at("properties").find(key);
    ASSERT_NE(property, nullptr) << field.path;
    EXPECT_EQ(property->at("description").as_string(), field.help);
    EXPECT_FALSE(node->at("additionalProperties").as_bool());
  }
  EXPECT_EQ(schema.at("properties").at("training").at("properties").at("seed").at("default").as_int(), 42);
}

TEST(ConfigDocs, PageIsUpToDate) {
  const std::string page = testing::read_file(testing::source_dir() / "docs/reference/config.md");
  EXPECT_TRUE(replace_generated_part(page, kConfigReference, config_reference()) == page)
      << "run: quench config docs docs/reference/config.md";
}

TEST(ConfigDocs, PageWithoutMarksIsRefused) {
  EXPECT_THROW((void)replace_generated_part("no marks", kConfigReference, ""), Error);
  EXPECT_THROW((void)replace_generated_part("<!-- end generated -->\n<!-- begin generated: quench config docs -->\n",
                                            kConfigReference, ""),
               Error);
}

TEST(ConfigPresets, MissingFileNamesTheNearestEmbeddedConfig) {
  try {
    (void)load_run_config("shakespeare_chra");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "shakespeare_chra: no such file, and no embedded run config has that name "
                 "(did you mean \"shakespeare_char\"?)");
  }
}

}  // namespace
}  // namespace quench
