// `quench quantize` by a budget of bits or bytes.

#include <gmock/gmock.h>

#include <fstream>

#include "export/formats/gguf/reader.h"
#include "export/formats/gguf/types.h"
#include "tests/apps/run_project.h"

namespace quench::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class BitBudgetVerb : public ::testing::Test {
 protected:
  BitBudgetVerb() { write_id_records(folder_ / "ids.jsonl"); }

  Outcome quantize(const std::string& format, const std::string& output, std::vector<std::string> more) {
    std::vector<std::string> arguments{"quantize",
                                       "--model",
                                       model_.string(),
                                       "--format",
                                       format,
                                       "--output",
                                       output,
                                       "--calibration",
                                       "ids.jsonl",
                                       "--calibration-samples",
                                       "8",
                                       "--calibration-seq-len",
                                       "32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_.path(), arguments);
  }

  TempDir folder_;
  fs::path model_ = golden_dir() / "models/llama";
};

TEST_F(BitBudgetVerb, FilesAreAtMostTheSizeAndSmallerBudgetsMakeSmallerFiles) {
  std::uintmax_t last = 0;
  for (const int kilobytes : {40, 48, 60}) {
    const std::string name = fmt::format("{}.gguf", kilobytes);
    const Outcome made = quantize("gguf", name, {"--target-size", fmt::format("{}kB", kilobytes)});
    ASSERT_EQ(made.status, 0) << made.errors;
    EXPECT_THAT(made.output, HasSubstr("expected KL divergence in nats a token"));
    EXPECT_LE(fs::file_size(folder_ / name), kilobytes * 1000u);
    EXPECT_GT(fs::file_size(folder_ / name), last);
    last = fs::file_size(folder_ / name);
    EXPECT_EQ(run_program(folder_.path(), {"export", "--model", name, "--output", "plain"}).status, 0);
  }
}

// A GGUF file holds the tokenizer too.
TEST_F(BitBudgetVerb, TheTokenizerCountsForTheSize) {
  fs::create_directory(folder_ / "tokenizer");
  std::ofstream(folder_ / "tokenizer/tokenizer.json")
      << R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
             "added_tokens": [], "normalizer": null, "post_processor": null,
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
             "decoder": {"type": "ByteLevel"}})";
  const std::string chat = "{% for m in messages %}{{ m.content }}" + std::string(20'000, ' ') + "{% endfor %}";
  std::ofstream(folder_ / "tokenizer/tokenizer_config.json") << Json(Json::Object{{"chat_template", chat}}).dump();
  const Outcome made = quantize("gguf", "a.gguf", {"--target-size", "64kB", "--tokenizer", "tokenizer"});
  ASSERT_EQ(made.status, 0) << made.errors;
  EXPECT_LE(fs::file_size(folder_ / "a.gguf"), 64'000u);
  EXPECT_GT(fs::file_size(folder_ / "a.gguf"), 56'000u);
  // What a file without the template has place for.
  EXPECT_EQ(quantize("gguf", "b.gguf", {"--target-size", "36kB", "--tokenizer", "tokenizer"}).status, 2);
  EXPECT_EQ(quantize("gguf", "b.gguf", {"--target-size", "40kB"}).status, 0);
}

TEST_F(BitBudgetVerb, ASavedPlanGivesTheSameFileAgain) {
  const std::vector<std::string> options{"--target-bits", "5.5", "--scheme", "q4_0,q5_0,q8_0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), options.begin(), options.end());
    return more;
  };
  const Outcome made = quantize("gguf", "a.gguf", with({"--search-steps", "8", "--save-plan", "plan.json"}));
  ASSERT_EQ(made.status, 0) << made.errors;
  EXPECT_THAT(made.output, AllOf(HasSubstr("measured on"), HasSubstr("8 trials")));
  ASSERT_EQ(quantize("gguf", "b.gguf", {"--plan", "plan.json"}).status, 0);
  EXPECT_EQ(read_file(folder_ / "a.gguf"), read_file(folder_ / "b.gguf"));

  const auto refused = [&](std::vector<std::string> more) {
    const Outcome outcome = quantize("gguf", "c.gguf", std::move(more));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_FALSE(fs::exists(folder_ / "c.gguf"));
    return outcome.errors;
  };
  EXPECT_THAT(refused({"--plan", "plan.json", "--scheme", "q4_0"}),
              HasSubstr("--plan names the schemes: omit --scheme"));
  EXPECT_THAT(refused(with({"--plan", "plan.json"})), HasSubstr("two choices of schemes"));
  EXPECT_THAT(refused({"--scheme", "q4_0", "--save-plan", "p.json"}), HasSubstr("--save-plan has no effect without"));
  EXPECT_THAT(refused(with({"--save-plan", "ids.jsonl"})), HasSubstr("ids.jsonl"));
  EXPECT_THAT(refused(with({"--search-steps", "-1"})), HasSubstr("--search-steps"));
  EXPECT_THAT(refused({"--plan", "ids.jsonl"}), HasSubstr("--plan"));
  EXPECT_THAT(refused({"--plan", "missing.json"}), HasSubstr("missing.json"));
  std::ofstream(folder_ / "other.json") << R"({"scheme": "q4_0", "layers": {"model.layers.77.mlp.up_proj": "q4_0"}})";
  EXPECT_THAT(refused({"--plan", "other.json"}), HasSubstr("model.layers.77.mlp.up_proj"));
  std::ofstream(folder_ / "unknown.json") << R"({"scheme": "q4_0", "layers": {"lm_head": "q4_7"}})";
  EXPECT_THAT(refused({"--plan", "unknown.json"}), HasSubstr("lm_head"));
  std::ofstream(folder_ / "list.json") << "[]";
  EXPECT_THAT(refused({"--plan", "list.json"}), HasSubstr("is no plan of schemes"));
}

// What stays in high precision by an exclusion counts for the size, whatever rules match it, and stays so under the
// plan.
TEST_F(BitBudgetVerb, ExclusionsCountForTheSizeAndArePartOfThePlan) {
  const std::vector<std::string> excluded{"--exclude", "*.up_proj,lm_head", "--scheme", "q4_0,q8_0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), excluded.begin(), excluded.end());
    return more;
  };
  ASSERT_EQ(quantize("gguf", "a.gguf", with({"--target-bits", "6", "--save-plan", "plan.json"})).status, 0);
  const Outcome planned = quantize("gguf", "b.gguf", {"--plan", "plan.json"});
  ASSERT_EQ(planned.status, 0) << planned.errors;
  EXPECT_EQ(read_file(folder_ / "a.gguf"), read_file(folder_ / "b.gguf"));
  // Less than what stays as it is.
  const Outcome small = quantize("gguf", "c.gguf", with({"--rule", "*_proj=q4_0", "--target-size", "30kB"}));
  EXPECT_EQ(small.status, 2);
  EXPECT_THAT(small.errors, HasSubstr("no choice of schemes is within it"));
}

// Output, plan, matrix and inputs are files of their own.
TEST_F(BitBudgetVerb, FilesDoNotReplaceEachOther) {
  const std::string ids = read_file(folder_ / "ids.jsonl");
  const std::vector<std::string> budget{"--target-bits", "5.5", "--scheme", "q4_0,q8_0"};
  const auto refused = [&](std::vector<std::string> more, const std::string& output, const std::string& reason) {
    more.insert(more.begin(), budget.begin(), budget.end());
    const Outcome outcome = quantize("gguf", output, more);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.errors, HasSubstr(reason));
  };
  refused({"--overwrite", "--save-imatrix", "ids.jsonl"}, "a.gguf", "--save-imatrix ids.jsonl");
  refused({"--overwrite", "--save-plan", "ids.jsonl"}, "a.gguf", "--save-plan ids.jsonl");
  refused({"--save-plan", "x", "--save-imatrix", "./x"}, "a.gguf", "is the path of --save-imatrix too");
  refused({"--save-imatrix", "a.gguf"}, "a.gguf", "is the path of the model that is written too");
  refused({"--save-plan", "a.gguf"}, "a.gguf", "is the path of the model that is written too");
  EXPECT_EQ(read_file(folder_ / "ids.jsonl"), ids);
  EXPECT_FALSE(fs::exists(folder_ / "a.gguf") || fs::exists(folder_ / "x"));
}

TEST_F(BitBudgetVerb, TheChoiceIsPrintedAndStoredAndTheSameAgain) {
  const std::vector<std::string> options{"--target-bits", "5.5", "--scheme", "q4_0,q5_0,q8_0", "--json"};
  const Outcome made = quantize("gguf", "a.gguf", options);
  ASSERT_EQ(made.status, 0) << made.errors;
  const Json plan = Json::parse(made.output).at("plan");
  EXPECT_LE(plan.at("bits_per_weight").as_double(), 5.5);
  EXPECT_EQ(plan.at("cost_unit").as_string(), "kl_nats_per_token");
  const std::string scheme = plan.at("layers").at("model.layers.1.mlp.down_proj").as_string();
  for (const GgufEntry& entry : read_gguf_head(folder_ / "a.gguf").tensors)
    if (entry.name == "blk.1.ffn_down.weight") {
      std::string type = gguf_type_name(entry.type);
      std::ranges::transform(type, type.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      EXPECT_EQ(type, scheme);
    }
  ASSERT_EQ(quantize("gguf", "b.gguf", options).status, 0);
  EXPECT_TRUE(read_file(folder_ / "a.gguf") == read_file(folder_ / "b.gguf"));
}

TEST_F(BitBudgetVerb, FoldersOfOtherFormatsAreRead) {
  for (const char* format : {"compressed-tensors", "torchao"}) {
    SCOPED_TRACE(format);
    ASSERT_EQ(quantize(format, format, {"--target-bits", "5"}).status, 0);
    const Outcome seen = run_program(folder_.path(), {"eval", "--model", format, "--data", "ids.jsonl"});
    EXPECT_EQ(seen.status, 0) << seen.errors;
  }
}

TEST_F(BitBudgetVerb, RefusesWhatNoChoiceMeetsAndWritesNothing) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& format = "gguf") {
    const Outcome outcome = quantize(format, "out", more);
    EXPECT_EQ(outcome.status, 2) << outcome.errors;
    EXPECT_FALSE(fs::exists(folder_ / "out"));
    return outcome.errors;
  };
  EXPECT_THAT(refused({"--target-bits", "1"}),
              AllOf(HasSubstr("--target-bits 1: no choice of schemes is within it"), HasSubstr("the smallest has")));
  EXPECT_THAT(refused({"--target-size", "9kB"}), HasSubstr("--target-size 9kB: no choice"));
  for (const char* bits : {"0", "-4", "nan", "64"})
    EXPECT_THAT(refused({"--target-bits", bits}), HasSubstr("--target-bits")) << bits;
  EXPECT_THAT(refused({"--target-bits", "four"}), HasSubstr("expected a number"));
  for (const char* size : {"5", "0GB", "-5GB", "big"})
    EXPECT_THAT(refused({"--target-size", size}), HasSubstr("is no size: expected a number above 0")) << size;
  EXPECT_THAT(refused({"--target-bits", "4", "--target-size", "5GB"}), HasSubstr("excludes"));
  EXPECT_THAT(refused({"--target-bits", "5", "--method", "gptq"}),
              HasSubstr("--method gptq suits none of the schemes"));
  EXPECT_THAT(refused({"--target-bits", "5"}, "hf"), HasSubstr("no schemes to choose from by a budget"));
  EXPECT_THAT(refused({"--target-size", "5MB"}, "torchao"), HasSubstr("stores integers of any width in 8 bits"));
}

}  // namespace
}  // namespace quench::testing
