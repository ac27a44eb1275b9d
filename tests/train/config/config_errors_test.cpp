// Messages for wrong configs.

#include <gmock/gmock.h>

#include <ctime>
#include <set>

#include "config_testing.h"
#include "tests/testing.h"
#include "train/config/fields/field.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::issues;
using ::testing::Not;
using testing::parse;

// Every string at edit distance one: a letter left out, doubled, replaced, or swapped with its neighbour.
std::set<std::string> misspellings(const std::string& name) {
  std::set<std::string> result;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    for (const char letter : {'a', 's', 'x', '_'}) {
      result.insert(name.substr(0, i) + letter + name.substr(i));
      if (i < name.size()) result.insert(name.substr(0, i) + letter + name.substr(i + 1));
    }
    if (i < name.size()) result.insert(name.substr(0, i) + name.substr(i + 1));
    if (i + 1 < name.size()) {
      std::string swapped = name;
      std::swap(swapped[i], swapped[i + 1]);
      result.insert(swapped);
    }
  }
  result.erase(name);
  result.erase("");
  return result;
}

// One value at a path, every object on the way made.
Json document_with(const std::string& path, const Json& value) {
  const std::size_t dot = path.find('.');
  const std::string first = path.substr(0, dot);
  const Json inner = dot == std::string::npos ? value : document_with(path.substr(dot + 1), value);
  return Json(Json::Object{{first, inner}});
}

std::vector<ConfigIssue> issues_of(const Json& document) {
  try {
    (void)run_config_from_json(document, "run.json", {}, testing::kNoFiles);
  } catch (const ConfigError& error) {
    return error.issues();
  }
  return {};
}

const ConfigIssue* issue_about(const std::vector<ConfigIssue>& list, const std::string& key) {
  for (const ConfigIssue& issue : list) {
    if (issue.key == key) return &issue;
  }
  return nullptr;
}

TEST(ConfigErrors, MisspelledKeysNameTheRightOne) {
  int tried = 0, right = 0;
  for (const Field& field : field_table()) {
    const std::size_t last_dot = field.path.rfind('.');
    const std::string parent = field.path.substr(0, last_dot + 1);
    for (const std::string& key : misspellings(field.path.substr(last_dot + 1))) {
      const std::string path = parent + key;
      if (find_field(path) != nullptr || key.find('.') != std::string::npos) continue;
      const auto list = issues_of(document_with(path, field.write(default_config())));
      const ConfigIssue* issue = issue_about(list, path);
      ASSERT_NE(issue, nullptr) << path << " was accepted";
      EXPECT_THAT(issue->reason, HasSubstr("unknown key"));
      ++tried;
      right += issue->suggestion == field.path;
    }
  }
  EXPECT_GT(tried, 4000);
  RecordProperty("share_right", fmt::format("{} of {}", right, tried));
  EXPECT_GE(right, tried * 95 / 100) << right << " of " << tried;
}

TEST(ConfigErrors, MisspelledOverridesNameTheRightKey) {
  int tried = 0, right = 0;
  for (const Field& field : field_table()) {
    for (const std::string& path : misspellings(field.path)) {
      if (find_field(path) != nullptr) continue;
      const auto list = issues("{}", {"--" + path + "=1"});
      const ConfigIssue* issue = issue_about(list, path);
      ASSERT_NE(issue, nullptr) << path << " was accepted";
      ++tried;
      right += issue->suggestion == field.path;
    }
  }
  EXPECT_GE(right, tried * 95 / 100) << right << " of " << tried;
}

TEST(ConfigErrors, MisspelledSectionsNameTheRightOne) {
  int tried = 0, right = 0;
  for (const std::string& section : section_names()) {
    for (const std::string& name : misspellings(section)) {
      if (std::find(section_names().begin(), section_names().end(), name) != section_names().end()) continue;
      const auto list = issues_of(document_with(name, Json::object()));
      const ConfigIssue* issue = issue_about(list, name);
      ASSERT_NE(issue, nullptr) << name << " was accepted";
      ++tried;
      right += issue->suggestion == section;
    }
  }
  EXPECT_GE(right, tried * 95 / 100) << right << " of " << tried;
}

TEST(ConfigErrors, ForeignKeysSuggestOurKeys) {
  const std::pair<std::string, std::string> cases[] = {
      {"training.lr", "optimizer.lr"},
      {"optimizer.learning_rate", "optimizer.lr"},
      {"training.local_batch_size", "training.micro_batch_size"},
      {"training.gradient_accumulation_steps", "training.global_batch_size"},
      {"training.seq_len", "data.seq_len"},
      {"training.max_steps", "training.steps"},
      {"checkpoint.keep_latest_k", "checkpoint.keep_latest"},
      {"recipe.exclude", "recipe.filter.exclude"},
      {"model.from_scratch", "model.init"},
      {"training.bf16", "training.dtype"},
      {"training.fp16", "training.dtype"},
      {"lr_schedule.warmup_ratio", "lr_schedule.warmup_steps"},
      {"model.n_layer", "model.num_hidden_layers"},
      {"float8.recipe_name", "recipe.name"},
      {"learning_rate", "optimizer.lr"},
      {"optim.lr", "optimizer.lr"},
      {"training.modules_to_save", "lora.modules_to_save"},
      {"unfrozen_parameters", "training.train"},
      {"training.early_stopping_patience", "evaluation.early_stopping.patience"},
      {"load_best_model_at_end", "checkpoint.keep_best"},
      {"dtype", "training.dtype"},
      {"peft_use_dora", "lora.dora"},
      {"assistant_only_loss", "data.train_on"},
      {"num_output_chunks", "training.loss_chunk_size"},
  };
  for (const auto& [theirs, ours] : cases) {
    const auto list = issues("{}", {"--" + theirs + "=1"});
    const ConfigIssue* issue = issue_about(list, theirs);
    ASSERT_NE(issue, nullptr) << theirs;
    EXPECT_EQ(issue->suggestion, ours) << theirs;
  }
  EXPECT_EQ(issues_of(document_with("lr", 1))[0].suggestion, "optimizer.lr");
}

// What differs from theirs, or why there is nothing to set, is said too; at the top of a file as in its sections.
TEST(ConfigErrors, ForeignKeysAreExplained) {
  const std::pair<std::string, std::string> cases[] = {
      {"bf16", "unknown section; \"bf16\" is its default (did you mean \"training.dtype\"?)"},
      {"training.fp16",
       "f16 needs loss scaling, which is not supported: bf16 or f32 (did you mean \"training.dtype\"?)"},
      {"training.compile", "unknown key; kernels are compiled ahead of time; nothing to enable"},
      {"compile", "unknown section; kernels are compiled ahead of time"},
      {"warmup_ratio", "a number of steps, not a share of them (did you mean \"lr_schedule.warmup_steps\"?)"},
      {"n_layer", "(did you mean \"model.num_hidden_layers\"?)"},
      {"float8.recipe_name",
       "float8.recipe_name: unknown key; tensorwise is float8_tensorwise, rowwise float8_rowwise (did you mean "
       "\"recipe.name\"?)"},
  };
  for (const auto& [theirs, answer] : cases) {
    std::string all;
    for (const ConfigIssue& issue : issues_of(document_with(theirs, 1))) all += issue.to_string() + "\n";
    EXPECT_THAT(all, HasSubstr(answer)) << theirs;
    std::string overridden;
    for (const ConfigIssue& issue : issues("{}", {"--" + theirs + "=1"})) overridden += issue.to_string() + "\n";
    EXPECT_THAT(overridden, HasSubstr("unknown key")) << theirs;
  }
}

TEST(ConfigErrors, OtherLanguagesAreRecognised) {
  const std::tuple<const char*, const char*, int> cases[] = {
      {"model:\n  preset: tiny\n", "YAML", 1},
      {"# a run\n\ntraining: {steps: 3}\n", "YAML", 3},
      {"---\nmodel:\n", "YAML", 1},
      {"# a run\n[training]\nsteps = 3\n", "TOML", 2},
      {"[[data.train]]\npath = \"a\"\n", "TOML", 1},
      {"steps = 3\n", "TOML", 1},
  };
  for (const auto& [text, language, line] : cases) {
    const auto list = issues(text);
    ASSERT_EQ(list.size(), 1u) << text;
    EXPECT_THAT(list[0].to_string(),
                HasSubstr(fmt::format("run.json:{}: this looks like {}; a config is one JSON object", line, language)));
  }
  for (const char* text : {"{\"training\": {\"steps\": 3,}}", "[1, 2", "\"model\": 3", "", "// note\n{", "nonsense"})
    EXPECT_THAT(issues(text)[0].to_string(), ::testing::Not(HasSubstr("looks like"))) << text;
}

TEST(ConfigErrors, AKeyNearNothingListsTheKnownOnes) {
  const auto list = issues_of(document_with("run.quaternions", 1));
  const ConfigIssue* issue = issue_about(list, "run.quaternions");
  ASSERT_NE(issue, nullptr);
  EXPECT_EQ(issue->reason, "unknown key; known keys of run are name, folder, plugins");
  EXPECT_THAT(issues_of(document_with("quaternions", 1))[0].reason, HasSubstr("known sections are run, model, data"));
}

// The JSON types that the words of a field's type allow, so that the table below needs no second opinion on each key.
bool type_admits(const Field& field, const Json& value) {
  const std::string& type = field.type;
  const auto says = [&](std::string_view word) { return type.find(word) != std::string::npos; };
  if (value.is_null()) return says("or null") || (field.nullable && says("null"));
  if (value.is_bool()) return type.starts_with("boolean");
  if (value.is_integer()) {
    if (says("a step")) return value.as_double() >= 1 && value.as_double() < 9e18;
    if (!type.starts_with("integer") && !type.starts_with("number")) return false;
    RunConfig scratch = default_config();
    return !field.read(value, scratch);  // the range is checked in OutOfRange below
  }
  if (value.is_number()) return type.starts_with("number");
  if (value.is_string()) {
    return says("non-empty string") || says("path") || says("folder");
  }
  if (value.is_array()) return says("list");
  return type.starts_with("object");
}

TEST(ConfigErrors, WrongTypesAreRefusedForEveryKey) {
  const std::vector<Json> values = {Json("3"),     Json(16.7),
                                    Json(true),    Json(nullptr),
                                    Json(-1),      Json(std::uint64_t{18446744073709551615u}),
                                    Json::array(), Json::object(),
                                    Json(1e300),   Json(Json::Array{Json(true)})};
  int refused = 0;
  for (const Field& field : field_table()) {
    for (const Json& value : values) {
      RunConfig config = default_config();
      const auto error = field.read(value, config);
      if (value.is_number() && !value.is_integer() && field.type.starts_with("number")) {
        continue;  // a number for a number: OutOfRange
      }
      const bool list_of_bool = value.is_array() && !value.as_array().empty();
      const bool empty_pair = value.is_array() && field.type.starts_with("list of two");
      if (type_admits(field, value) && !list_of_bool && !empty_pair) {
        EXPECT_FALSE(error.has_value()) << field.path << " refused " << value.dump() << ": " << error->reason;
        continue;
      }
      ASSERT_TRUE(error.has_value()) << field.path << " (" << field.type << ") accepted " << value.dump();
      EXPECT_THAT(error->reason, HasSubstr("expected ")) << field.path;
      EXPECT_THAT(error->reason, HasSubstr("got ")) << field.path;
      EXPECT_EQ(config, default_config()) << field.path << " changed although " << value.dump() << " was refused";
      ++refused;
    }
  }
  EXPECT_GT(refused, 600);
}

TEST(ConfigErrors, BooleansAreNotNumbersNorNumbersStrings) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"training": {"steps": true}})", "expected integer in [1, 1000000000000] or null, got true (boolean)"},
      {R"({"training": {"steps": 16.7}})", "or null, got 16.7 (number)"},
      {R"({"training": {"steps": 16.0}})", "or null, got 16.0 (number)"},
      {R"({"training": {"steps": "3"}})", "or null, got \"3\" (string)"},
      {R"({"training": {"deterministic": 1}})", "expected boolean, got 1 (integer)"},
      {R"({"training": {"deterministic": "true"}})", "expected boolean, got \"true\" (string)"},
      {R"({"optimizer": {"lr": "1e-3"}})", "expected number in [0, 1000], got \"1e-3\" (string)"},
      {R"({"optimizer": {"betas": [0.9]}})", "expected list of two numbers in [0, 1), got an array of 1"},
      {R"({"optimizer": {"betas": [0.9, 1]}})", "element 2 of the list: expected number in [0, 1), got 1 (integer)"},
      {R"({"data": {"train": [3]}})", "element 1 of the list: expected path or"},
      {R"({"data": {"train": [{"path": "a", "weight": 0}]}})", "weight: expected number in (0, "},
      {R"({"data": {"train": [{"weight": 1}]}})", "a data source has no path"},
      {R"({"data": {"train": [{"path": "a", "wieght": 1}]}})", "unknown key \"wieght\" of a data source"},
      {R"({"model": {"preset": ""}})", "expected non-empty string or null, got \"\" (string)"},
      {R"({"model": {"eos_token_id": [1, -2]}})", "expected integer >= 0 or list of them or null, got an array of 2"},
      {R"({"training": 3})", "expected object, got 3 (integer)"},
      {R"({"recipe": {"filter": []}})", "expected object, got an array of 0"},
      {"[]", "expected object of sections, got an array of 0"},
  };
  for (const auto& [text, expected] : cases) {
    const auto list = issues(text);
    EXPECT_TRUE(std::any_of(list.begin(), list.end(),
                            [&](const ConfigIssue& issue) { return issue.reason.find(expected) != std::string::npos; }))
        << text << "\n  gave: " << (list.empty() ? "nothing" : list[0].to_string());
  }
}

TEST(ConfigErrors, IntegersAreAcceptedAsNumbers) {
  EXPECT_EQ(testing::minimal({"--training.max_norm=1"}).training.max_norm, 1.0);
  EXPECT_EQ(parse(R"({"model": {"preset": "tiny"}, "data": {"train": "a.bin", "seq_len": 8},
                      "training": {"steps": 1, "max_norm": 2}})")
                .training.max_norm,
            2.0);
}

TEST(ConfigErrors, OutOfRange) {
  const std::pair<const char*, const char*> cases[] = {
      {"--training.steps=0", "got 0"},
      {"--training.steps=-5", "got -5"},
      {"--training.micro_batch_size=0", ">= 1"},
      {"--training.max_norm=-0.5", ">= 0"},
      {"--optimizer.lr=-1e-4", "[0, 1000]"},
      {"--optimizer.betas=0.9,1.0", "[0, 1)"},
      {"--lr_schedule.min_lr_ratio=1.5", "[0, 1]"},
      {"--training.epochs=0", "(0, 1000000]"},
      {"--data.seq_len=99999999999999999999", "[1, 16777216]"},
      {"--training.seed=-1", "[0, "},
      {"--checkpoint.resume=0", "a step (integer >= 1)"},
  };
  for (const auto& [argument, expected] : cases) {
    const auto list = issues(testing::kMinimal, {argument});
    ASSERT_FALSE(list.empty()) << argument;
    EXPECT_EQ(list[0].origin, argument);
    if (std::string(expected).starts_with(">=")) continue;
    EXPECT_THAT(list[0].reason, HasSubstr(expected)) << argument;
  }
}

TEST(ConfigErrors, WordsNameTheChoicesAndTheNearest) {
  const auto dtype = issues(testing::kMinimal, {"--training.dtype=bf61"});
  EXPECT_EQ(dtype[0].to_string(),
            "--training.dtype=bf61: training.dtype: expected one of bf16, f32, got \"bf61\" (string) "
            "(did you mean \"bf16\"?)");
  EXPECT_EQ(issues(testing::kMinimal, {"--training.dtype=bfloat16"})[0].suggestion, "bf16");
  EXPECT_EQ(issues(testing::kMinimal, {"--training.master_dtype=float32"})[0].suggestion, "f32");
  EXPECT_EQ(issues(testing::kMinimal, {"--training.master_dtype=non"})[0].suggestion, "none");
  EXPECT_EQ(issues(testing::kMinimal, {"--recipe.name=float8_rowise"})[0].suggestion, "float8_rowwise");
  EXPECT_EQ(issues(testing::kMinimal, {"--lr_schedule.name=cosin"})[0].suggestion, "cosine");
  EXPECT_EQ(issues(testing::kMinimal, {"--model.preset=llama-3.2-1B"})[0].suggestion, "llama-3.2-1b");
}

TEST(ConfigErrors, AllErrorsAreListedWithTheirPlaces) {
  const std::string text =
      "{\n"
      "  \"model\": {\"preset\": \"tiny\"},\n"
      "  \"data\": {\"train\": [\"a.bin\"], \"seq_len\": \"64\"},\n"
      "  \"training\": {\n"
      "    \"setps\": 100,\n"
      "    \"micro_batch_size\": 0,\n"
      "    \"dtype\": \"bf61\"\n"
      "  },\n"
      "  \"optimiser\": {}\n"
      "}\n";
  std::string message;
  try {
    (void)parse(text);
  } catch (const ConfigError& error) {
    message = error.what();
    EXPECT_EQ(error.issues().size(), 5u) << message;
  }
  EXPECT_THAT(message,
              HasSubstr("run.json:3:43: data.seq_len: expected integer in [1, 16777216], got \"64\" (string)"));
  EXPECT_THAT(message, HasSubstr("run.json:5:14: training.setps: unknown key (did you mean \"training.steps\"?)"));
  EXPECT_THAT(message, HasSubstr("run.json:6:25: training.micro_batch_size: expected integer in"));
  EXPECT_THAT(message, HasSubstr("run.json:7:14: training.dtype: expected one of bf16, f32"));
  EXPECT_THAT(message, HasSubstr("run.json:9:16: optimiser: unknown section (did you mean \"optimizer\"?)"));
  EXPECT_THAT(message, Not(HasSubstr("training.steps: the length of the run is missing")));
}

TEST(ConfigErrors, HostileDocumentsEndQuicklyWithOneMessage) {
  const std::clock_t begin = std::clock();  // processor time: other processes do not count
  std::string many_keys = "{\"training\": {";
  for (int i = 0; i < 100000; ++i) many_keys += fmt::format("{}\"step{}\": 1", i == 0 ? "" : ",", i);
  many_keys += "}}";
  const std::pair<std::string, std::string> cases[] = {
      {"", "run.json:1:1"},
      {"   ", "run.json:1:"},
      {R"({"training": {"steps": 1, "steps": 2}})", "duplicate key \"steps\""},
      {R"({"training": {"steps": 1,}})", "run.json:1:"},
      {"{\"training\": {\"steps\": 1e400}}", "run.json:1:"},
      {"{\"training\": {\"steps\": NaN}}", "run.json:1:"},
      {"{\"run\": {\"name\": \"\xff\"}}", "run.json:1:"},
      {std::string(1000000, '['), "nested deeper"},
      {std::string(20000000, ' '), "bytes"},
      {many_keys, "more than 100 errors"},
  };
  for (const auto& [text, expected] : cases) {
    const auto list = issues(text);
    ASSERT_FALSE(list.empty()) << text.substr(0, 60);
    EXPECT_TRUE(
        std::any_of(list.begin(), list.end(),
                    [&](const ConfigIssue& issue) { return issue.to_string().find(expected) != std::string::npos; }))
        << text.substr(0, 60) << ": " << list[0].to_string();
    EXPECT_LE(list.size(), 110u);
  }
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10.0);
}

TEST(ConfigErrors, CommentsByteOrderMarksAndSchemaAreAccepted) {
  const RunConfig config =
      parse(std::string("\xEF\xBB\xBF") +
            "// a comment\n{\"$schema\": \"quench.schema.json\", /* and */ \"model\": {\"preset\": "
            "\"tiny\"}, \"data\": {\"train\": \"a.bin\", \"seq_len\": 8}, \"training\": "
            "{\"steps\": 3}, \"lora\": null}");
  EXPECT_EQ(config.training.steps, 3);
}

TEST(ConfigErrors, LongStringsAreCutInMessages) {
  const auto list = issues(testing::kMinimal, {"--training.dtype=" + std::string(5000, 'x')});
  ASSERT_FALSE(list.empty());
  EXPECT_LT(list[0].reason.size(), 200u);
}

}  // namespace
}  // namespace quench
