// The verb eval, as a user meets it.

#include <gmock/gmock.h>

#include <limits>

#include "core/json/json.h"
#include "core/safetensors/safetensors.h"
#include "tests/apps/nonfinite_model.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

class EvalVerb : public ::testing::Test {
 protected:
  EvalVerb() { write_file(folder_ / "text.txt", text("middle")); }

  std::string text(const std::string& name) { return figures_.at("texts").at(name).as_string(); }
  Outcome eval(std::vector<std::string> more, const std::string& model = {}) {
    std::vector<std::string> arguments{"eval",
                                       "--device",
                                       "cpu",
                                       "--dtype",
                                       "f32",
                                       "--model",
                                       model.empty() ? (figures_folder_ / "bos").string() : model};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_.path(), arguments);
  }
  Json eval_json(std::vector<std::string> more) {
    more.emplace_back("--json");
    const Outcome outcome = eval(std::move(more));
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return Json::parse(outcome.output);
  }
  // The recorded figures of text.txt.
  const Json& expected(std::int64_t window, std::int64_t stride, bool special_tokens = true) {
    for (const Json& c : figures_.at("cases").as_array())
      if (c.at("text").as_string() == "middle" && c.at("tokenizer").as_string() == "bos" &&
          c.at("window").as_int() == window && c.at("stride").as_int() == stride &&
          c.at("special_tokens").as_bool() == special_tokens)
        return c;
    throw std::runtime_error("no such case");
  }

  TempDir folder_;
  std::filesystem::path figures_folder_ = testing::source_dir() / "tests/train/rolling_likelihood";
  Json figures_ = Json::parse_file(figures_folder_ / "figures.json");
};

TEST_F(EvalVerb, RollingWindowsAreTheDefaultAndSaidInBothOutputs) {
  const Json result = eval_json({"--data", "text.txt"});
  EXPECT_EQ(result.at("convention").as_string(), "rolling");
  EXPECT_EQ(result.at("prefix_token").as_int(), 0);
  EXPECT_EQ(result.at("seq_len").as_int(), 128) << "the model's context";
  EXPECT_TRUE(result.at("stride").is_null());
  const Json& golden = expected(128, 0);
  for (const char* key : {"word_perplexity", "byte_perplexity", "bits_per_byte"})
    EXPECT_NEAR(std::log(result.at(key).as_double() / golden.at(key).as_double()), 0, 1e-5) << key;
  const Outcome printed = eval({"--data", "text.txt", "--seq-len", "64"});
  EXPECT_THAT(printed.output,
              HasSubstr("rolling windows as lm-evaluation-harness makes them: 64 tokens, one of context; "
                        "prefix token 0 (<|begin|>)"));
  const Json bare = eval_json({"--data", "text.txt", "--seq-len", "16", "--no-special-tokens"});
  EXPECT_NEAR(bare.at("bits_per_byte").as_double(), expected(16, 0, false).at("bits_per_byte").as_double(), 1e-4);
}

TEST_F(EvalVerb, StrideIsTheOtherConvention) {
  const Json result = eval_json({"--data", "text.txt", "--seq-len", "64", "--stride", "32"});
  EXPECT_EQ(result.at("convention").as_string(), "strided");
  EXPECT_EQ(result.at("stride").as_int(), 32);
  const Json& golden = expected(64, 32);
  EXPECT_EQ(result.at("tokens").as_int(), golden.at("tokens").as_int());
  EXPECT_NEAR(result.at("loss").as_double(), -golden.at("log_likelihood").as_double() / golden.at("tokens").as_double(),
              1e-5);
  EXPECT_THAT(eval({"--data", "text.txt", "--stride", "32"}).output, HasSubstr("a new one every 32"));
  const Outcome wide = eval({"--data", "text.txt", "--seq-len", "64", "--stride", "65"});
  EXPECT_EQ(wide.status, 2);
  EXPECT_THAT(wide.errors, HasSubstr("--stride 65"));
  const Outcome beyond = eval({"--data", "text.txt", "--seq-len", "200"});
  EXPECT_EQ(beyond.status, 2);
  EXPECT_THAT(beyond.errors, HasSubstr("context of 128 tokens"));
}

TEST_F(EvalVerb, ShardsAreReadLikeTheirText) {
  const std::string tokenizer = (figures_folder_ / "bos").string();
  ASSERT_EQ(run_program(folder_.path(), {"tokenize", "--tokenizer", tokenizer, "--input", "text.txt", "--output",
                                         "shards", "--eos", "none"})
                .status,
            0);
  const Json text = eval_json({"--data", "text.txt"}), shard = eval_json({"--data", "shards/train-00000.bin"});
  for (const char* key : {"documents", "tokens", "words", "bytes"})
    EXPECT_EQ(shard.at(key).as_int(), text.at(key).as_int()) << key;
  EXPECT_NEAR(shard.at("loss").as_double(), text.at("loss").as_double(), 1e-9);
  // Bare ids have to be named.
  std::string ids;
  for (const char id : {'a', 'b', 'c', 'd'}) ids += std::string{id, '\0'};
  write_file(folder_ / "ids.bin", ids);
  EXPECT_EQ(eval_json({"--data", "ids.bin", "--format", "nanogpt"}).at("tokens").as_int(), 4);
  const Outcome unknown = eval({"--data", "ids.bin"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.errors, HasSubstr("nanogpt"));
}

TEST_F(EvalVerb, TasksAreScoredBesideTexts) {
  const std::string items = (testing::source_dir() / "tests/train/choice_tasks/piqa.jsonl").string();
  const Json both = eval_json({"--data", "text.txt", "--task", "piqa", items, "--limit", "10"});
  EXPECT_TRUE(both.find("word_perplexity") != nullptr);
  const Json& task = both.at("tasks").at("piqa");
  EXPECT_EQ(task.at("items").as_int(), 10);
  const Json alone = eval_json({"--task", "piqa", items, "--task", "arc_easy",
                                (testing::source_dir() / "tests/train/choice_tasks/arc_easy.jsonl").string()});
  EXPECT_EQ(alone.find("loss"), nullptr);
  const Json figures = Json::parse_file(testing::source_dir() / "tests/train/choice_tasks/figures.json");
  for (const Json& c : figures.at("cases").as_array()) {
    if (c.at("tokenizer").as_string() != "bos" || !c.at("special_tokens").as_bool()) continue;
    const Json* mine = alone.at("tasks").find(c.at("task").as_string());
    if (mine == nullptr) continue;
    EXPECT_DOUBLE_EQ(mine->at("acc").as_double(), c.at("acc").as_double());
    EXPECT_DOUBLE_EQ(mine->at("acc_norm").as_double(), c.at("acc_norm").as_double());
  }
  EXPECT_THAT(eval({"--task", "piqa", items}).output, HasSubstr("piqa              acc "));

  const auto refused = [&](std::vector<std::string> more, const std::string& reason) {
    const Outcome outcome = eval(std::move(more));
    EXPECT_NE(outcome.status, 0);
    EXPECT_EQ(outcome.output, "");
    EXPECT_THAT(outcome.errors, HasSubstr(reason));
  };
  refused({}, "nothing to evaluate");
  refused({"--task", "winogrande", items}, "known: hellaswag, arc_easy, arc_challenge, piqa");
  refused({"--task", "hellaswag", items}, "piqa.jsonl:1: ");
  refused({"--task", "piqa", "nowhere.jsonl"}, "nowhere.jsonl");
  refused({"--data", "text.txt", "--limit", "3"}, "--limit");
}

TEST_F(EvalVerb, ModelsStandSideBySideWithWhatTheyRecover) {
  const std::string full = (figures_folder_ / "bos").string();
  // Scored as 4 bits leave it, the same weights three ways: as the baseline under the recipe, as an export, as a model.
  ASSERT_EQ(run_program(folder_.path(), {"quantize", "--model", full, "--scheme", "int4_weight_only", "--dtype", "f32",
                                         "--output", "int4"})
                .status,
            0);
  const std::vector<std::string> under{
      "--data", "text.txt", "--baseline", full, "--recipe", "qat_int4_weight_only", "--group-size", "0"};
  const Json list = eval_json(under);
  ASSERT_EQ(list.as_array().size(), 3u);
  const auto role = [&](const Json& all, const char* name) -> const Json& {
    for (const Json& one : all.as_array())
      if (one.at("role").as_string() == name) return one;
    throw std::runtime_error("no such role");
  };
  const Json plain = eval_json({"--data", "text.txt"});
  EXPECT_EQ(role(list, "baseline").at("loss").as_double(), plain.at("loss").as_double());
  EXPECT_NE(role(list, "ptq").at("loss").as_double(), plain.at("loss").as_double());
  EXPECT_EQ(role(list, "model").at("loss").as_double(), role(list, "ptq").at("loss").as_double());
  EXPECT_EQ(role(list, "model").at("recovery").at("token_perplexity").as_double(), 0);
  // The whole loss is recovered by the baseline itself; the export's figures are those of the recipe.
  Json exported = eval_json({"--data", "text.txt", "--baseline", full, "--ptq", "int4"});
  EXPECT_NEAR(role(exported, "ptq").at("loss").as_double(), role(list, "ptq").at("loss").as_double(), 1e-5);
  EXPECT_DOUBLE_EQ(role(exported, "model").at("recovery").at("word_perplexity").as_double(), 1);
  const Outcome table = eval({"--data", "text.txt", "--baseline", full, "--ptq", "int4"});
  EXPECT_THAT(table.output, HasSubstr("100.0%"));
  EXPECT_THAT(table.output, HasSubstr("token_perplexity"));

  // A part of next to nothing means nothing: no row of it, and no number in the JSON.
  ASSERT_EQ(run_program(folder_.path(), {"quantize", "--model", full, "--scheme", "int8_weight_only", "--dtype", "f32",
                                         "--output", "int8"})
                .status,
            0);
  const std::vector<std::string> slight{"--data", "text.txt", "--baseline", full, "--ptq", "int8"};
  EXPECT_THAT(eval(slight).output, ::testing::Not(HasSubstr("recovered")));
  EXPECT_TRUE(role(eval_json(slight), "model").at("recovery").at("token_perplexity").is_null());

  const auto refused = [&](std::vector<std::string> more, const std::string& reason) {
    more.insert(more.begin(), {"--data", "text.txt"});
    const Outcome outcome = eval(std::move(more));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.output, "");
    EXPECT_THAT(outcome.errors, HasSubstr(reason));
  };
  refused({"--ptq", "int4"}, "--ptq needs --baseline");
  refused({"--baseline", full}, "--baseline needs --ptq");
  refused({"--baseline", "int4", "--recipe", "qat_int8"}, "quantized already");
  refused({"--recipe", "qat_int8", "--group-size", "32"}, "--group-size has no effect on --recipe qat_int8");
  refused({"--recipe", "auto"}, "name a recipe");
  refused({"--recipe", "qat_int4_weight_only", "--group-size", "48"},
          "recipe.group_size 48 does not divide its 16 inputs");
}

TEST_F(EvalVerb, AReferenceGivesDivergenceAndSharedLikeliestTokens) {
  const std::string full = (figures_folder_ / "bos").string();
  ASSERT_EQ(run_program(folder_.path(), {"quantize", "--model", full, "--scheme", "int4_weight_only", "--dtype", "f32",
                                         "--output", "int4"})
                .status,
            0);
  const Json plain = eval_json({"--data", "text.txt"}), self = eval_json({"--data", "text.txt", "--reference", full});
  EXPECT_EQ(self.at("loss").as_double(), plain.at("loss").as_double());
  EXPECT_EQ(plain.find("divergence"), nullptr);
  const Json& none = self.at("divergence");
  EXPECT_EQ(none.at("reference").as_string(), full);
  EXPECT_EQ(none.at("tokens").as_int(), self.at("tokens").as_int());
  EXPECT_NEAR(none.at("mean").as_double(), 0, 1e-6);
  EXPECT_EQ(none.at("same_top").as_double(), 1);
  const Outcome printed = eval({"--data", "text.txt", "--reference", full}, "int4");
  ASSERT_EQ(printed.status, 0) << printed.errors;
  EXPECT_THAT(printed.output, HasSubstr("divergence        0."));
  EXPECT_THAT(printed.output, HasSubstr("nats per token from " + full));
  EXPECT_THAT(printed.output, HasSubstr("same top token    0."));

  // Several models: a column each. With a baseline, divergence is recovered like perplexity.
  const std::vector<std::string> all{"--data", "text.txt", "--reference", full, "--baseline", full, "--ptq", "int4"};
  const Json list = eval_json(all);
  for (const Json& one : list.as_array()) {
    const double mean = one.at("divergence").at("mean").as_double();
    if (one.at("role").as_string() == "ptq")
      EXPECT_GT(mean, 1e-4);
    else
      EXPECT_NEAR(mean, 0, 1e-6);
  }
  const Outcome table = eval(all);
  EXPECT_THAT(table.output, HasSubstr("divergence"));
  EXPECT_THAT(table.output, HasSubstr("same_top"));

  const auto refused = [&](std::vector<std::string> more, int status, const std::string& reason) {
    const Outcome outcome = eval(std::move(more));
    EXPECT_EQ(outcome.status, status);
    EXPECT_EQ(outcome.output, "");
    EXPECT_THAT(outcome.errors, HasSubstr(reason));
  };
  const std::string items = (testing::source_dir() / "tests/train/choice_tasks/piqa.jsonl").string();
  refused({"--task", "piqa", items, "--reference", full}, 2, "--reference needs --data");
  refused({"--data", "text.txt", "--reference", "nowhere"}, 1, "nowhere");
  refused({"--data", "text.txt", "--reference", (testing::source_dir() / "tests/golden/models/llama").string()}, 2,
          "their distributions cannot be compared");
}

TEST_F(EvalVerb, AModelWithNanFails) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    testing::make_nonfinite_model(figures_folder_ / "bos", folder_ / "broken", value);
    for (const std::string flag : {"--json", "--no-special-tokens"}) {
      const Outcome outcome = eval({"--data", "text.txt", flag}, "broken");
      EXPECT_EQ(outcome.status, 1);
      EXPECT_EQ(outcome.output, "");
      EXPECT_THAT(outcome.errors, HasSubstr("not finite"));
    }
  }
}

TEST_F(EvalVerb, NothingToScoreIsNoPerplexityOfOne) {
  write_file(folder_ / "empty.txt", "");
  const Outcome outcome = eval({"--data", "empty.txt"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, Not(HasSubstr("perplexity")));
}

}  // namespace
}  // namespace quench
