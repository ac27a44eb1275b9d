// Command lines: bounds, exclusive options, defaults, values from the environment.

#include <gmock/gmock.h>

#include <cstdlib>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_program;

class CommandLineOf : public ::testing::Test {
 protected:
  Outcome run(const std::vector<std::string>& arguments) { return run_program(folder_.path(), arguments); }
  void expect_refused(const std::vector<std::string>& arguments, const std::string& part) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << outcome.errors;
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr(part), HasSubstr("--help")));
    EXPECT_EQ(outcome.output, "");
  }

  testing::TempDir folder_;
};

TEST_F(CommandLineOf, TheProgramRefusesWordsThatItCannotRead) {
  expect_refused({"generate", "--prompt", "x"}, "--model is required");
  expect_refused({"generate", "--model", "m", "--no-such-option"}, "--no-such-option");
  expect_refused({"generate", "--model", "m", "--prompt", "a", "--prompts", "b"}, "--prompt excludes --prompts");
  expect_refused({"generate", "--model", "m", "--top-k", "many"}, "--top-k");
  expect_refused({"generate", "--model", "m", "--batch-size", "4097"}, "--batch-size: expected 1 to 4096, got '4097'");
  expect_refused({"generate", "--model", "m", "--max-new-tokens", "-1"}, "--max-new-tokens");
  expect_refused({"eval", "--model", "m", "--limit", "0"}, "--limit");
  expect_refused({"eval", "--model", "m", "--task", "piqa"}, "--task");
  expect_refused({"quantize", "--model", "m", "--output", "o", "--smoothing", "1.5"}, "--smoothing");
  expect_refused({"run", "--nnodes"}, "--nnodes");
}

TEST_F(CommandLineOf, NumbersAreReadAsTheyAreWritten) {
  expect_refused({"generate", "--model", "m", "--max-new-tokens", "-5"},
                 "--max-new-tokens: expected 0 or more, got '-5'");
  expect_refused({"eval", "--model", "m", "--limit", "0"}, "--limit: expected a number above 0, got '0'");
  expect_refused({"quantize", "--model", "m", "--output", "o", "--smoothing", "1.5"}, "expected 0 to 1, got '1.5'");
  expect_refused({"generate", "--model", "m", "--temperature", "hot"}, "--temperature: expected a number, got 'hot'");
  expect_refused({"generate", "--model", "m", "--temperature", "nan"}, "--temperature: expected a number, got 'nan'");
  expect_refused({"generate", "--model", "m", "--top-k", "1.5"}, "--top-k: expected an integer, got '1.5'");
  expect_refused({"generate", "--model", "m", "--top-k", "0x10"}, "--top-k: expected an integer, got '0x10'");
  expect_refused({"generate", "--model", "m", "--seed", "-1"}, "--seed: expected an integer of 0 or more, got '-1'");
  expect_refused({"export", "--checkpoint", "m", "--output", "o", "--average", "8", "x"},
                 "--average: expected an integer");
  EXPECT_THAT(run({"export", "--checkpoint", "m", "--output", "o", "--max-shard-gb", "nan"}).errors,
              HasSubstr("--max-shard-gb: expected a number, got 'nan'"));
  // Not octal, which would be in range.
  expect_refused({"generate", "--model", "m", "--batch-size", "010000"},
                 "--batch-size: expected 1 to 4096, got '10000'");
  ASSERT_EQ(::setenv("PET_MAX_RESTARTS", "often", 1), 0);
  expect_refused({"run", "--", "true"}, "--max-restarts: expected an integer, got 'often'");
  ::unsetenv("PET_MAX_RESTARTS");
}

TEST_F(CommandLineOf, ListsOfTextTakeBracketsAndCommasAsTheyAreWritten) {
  testing::write_file(folder_ / "text.txt", "the ferry and the harbour, the ferry and the quay\n");
  const std::vector<std::string> texts = {"[INST]", "[/INST]", "[a,b]", "[]", "[PAD]", "a,b", "[1]"};
  std::vector<std::string> words = {"tokenize", "train", "--input",      "text.txt",
                                    "--output", "out",   "--vocab-size", "280"};
  words.emplace_back("--special");
  words.insert(words.end(), texts.begin(), texts.begin() + 5);
  words.emplace_back("--special=" + texts[5]);
  words.emplace_back("--special=" + texts[6]);
  const Outcome trained = run(words);
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const Json tokenizer = Json::parse(testing::read_file(folder_ / "out/tokenizer.json"));
  std::vector<std::string> added;
  for (const Json& token : tokenizer.at("added_tokens").as_array()) added.push_back(token.at("content").as_string());
  EXPECT_THAT(added, ::testing::IsSupersetOf(texts));

  // Words outside of lists.
  expect_refused({"generate", "--model", "m", "--top-k", "[1]"}, "--top-k: expected an integer, got '[1]'\n");
  EXPECT_EQ(run({"inspect", "a", "[b]"}).errors,
            "error: unexpected argument '[b]'\n`quench inspect --help` lists the options\n");
  EXPECT_THAT(run({"inspect", "[b]"}).errors, HasSubstr("[b]"));
  EXPECT_EQ(run({"run", "--", "echo", "[b]"}).output, "[b]\n");
}

TEST_F(CommandLineOf, ListsOfNumbersAreWordsOrOneWord) {
  const auto average = [&](const std::vector<std::string>& numbers) {
    std::vector<std::string> words = {"export", "--checkpoint", "none", "--output", "o", "--average"};
    words.insert(words.end(), numbers.begin(), numbers.end());
    return run(words);
  };
  for (const std::vector<std::string>& numbers :
       {std::vector<std::string>{"8", "x"}, {"[8,x]"}, {"8,x"}, {"8", "[9,x]"}}) {
    const Outcome outcome = average(numbers);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.errors, HasSubstr("--average: expected an integer, got 'x'"));
  }
  for (const std::vector<std::string>& numbers : {std::vector<std::string>{"8", "9"}, {"[8,9]"}, {"8,9"}})
    EXPECT_THAT(average(numbers).errors, AllOf(HasSubstr("none"), Not(HasSubstr("--help"))));
}

TEST_F(CommandLineOf, DashesBeforeTheVerbAreSkipped) {
  EXPECT_EQ(run({"--", "--help"}).output, run({"--help"}).output);
  EXPECT_EQ(run({"--", "help", "train"}).output, run({"train", "--help"}).output);
  EXPECT_EQ(run({"--", "inspect", "--help"}).output, run({"inspect", "--help"}).output);
  EXPECT_EQ(run({"--", "run", "--", "echo", "here"}).output, "here\n");
}

TEST_F(CommandLineOf, OptionsBeforeTheVerbAreNamed) {
  EXPECT_THAT(run({"-x", "train"}).errors,
              HasSubstr("error: option '-x' stands before the verb; options follow it: quench train ... -x"));
  const Outcome override = run({"--data.train=a", "train", "c.json"});
  EXPECT_EQ(override.status, 2);
  EXPECT_THAT(override.errors,
              HasSubstr("option '--data.train' stands before the verb; options follow it: quench train "
                        "... --data.train=a"));
  EXPECT_THAT(run({"--json", "config", "ls"}).errors, HasSubstr("quench config ... --json"));
  EXPECT_EQ(run({"--help", "train"}).status, 0);
}

TEST_F(CommandLineOf, UsageErrorsAreOneErrorWithTheNearestOption) {
  EXPECT_EQ(run({"generate", "--mdel=m"}).errors,
            "error: unknown option '--mdel'; did you mean '--model'?\n`quench generate --help` lists the options\n");
  EXPECT_EQ(run({"export", "--checkpoint", "c", "--output", "o", "--fromat", "hf"}).errors,
            "error: unknown option '--fromat'; did you mean '--format'?\n`quench export --help` lists the options\n");
  EXPECT_EQ(run({"inspect", "a", "b"}).errors,
            "error: unexpected argument 'b'\n`quench inspect --help` lists the options\n");
  EXPECT_EQ(run({"config", "cp"}).errors, "error: NAME is required\n`quench config cp --help` lists the options\n");
  EXPECT_EQ(run({"--vers"}).errors,
            "error: unknown option '--vers'; did you mean '--version'?\n`quench --help` lists the verbs\n");
}

TEST_F(CommandLineOf, VerbsOfOtherProgramsAreAnsweredWithThoseHere) {
  EXPECT_THAT(run({"chat", "--model", "m"}).errors,
              HasSubstr("unknown verb 'chat'; did you mean 'generate --interactive'?"));
  EXPECT_THAT(run({"finetune", "c.json"}).errors, HasSubstr("did you mean 'train'?"));
  EXPECT_THAT(run({"config", "convert"}).errors, Not(HasSubstr("export")));
  EXPECT_EQ(run({"convert"}).status, 2);
}

TEST_F(CommandLineOf, WithoutAVerbTheHelpIsShown) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{}, {"config"}, {"completion"}}) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.output, "");
    std::vector<std::string> help = words;
    help.emplace_back("--help");
    EXPECT_EQ(outcome.errors, run(help).output);
    EXPECT_THAT(outcome.errors, AllOf(HasSubstr("Usage: quench"), HasSubstr("Verbs:")));
  }
}

TEST_F(CommandLineOf, HelpIsAVerbToo) {
  EXPECT_EQ(run({"help"}).output, run({"--help"}).output);
  EXPECT_THAT(run({"help"}).output, HasSubstr("`quench VERB --help` lists the options of a verb"));
  const Outcome help = run({"help", "config", "cp"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.output, run({"config", "cp", "--help"}).output);
  EXPECT_EQ(run({"help", "trian"}).status, 2);
  EXPECT_EQ(run({"help", "help"}).output, run({"--help"}).output);
  EXPECT_THAT(run({"version"}).errors, HasSubstr("did you mean '--version'?"));
}

TEST_F(CommandLineOf, HelpOfAVerbWithAConfigHasOneUsage) {
  for (const std::string verb : {"train", "estimate", "probe", "distill-targets", "run"}) {
    const std::string help = run({verb, "--help"}).output;
    const std::size_t usage = help.find("Usage:");
    ASSERT_NE(usage, std::string::npos) << verb;
    EXPECT_LT(usage, help.find("--help")) << verb;
    EXPECT_EQ(help.find("Usage:", usage + 1), std::string::npos) << verb;
  }
}

TEST_F(CommandLineOf, HelpShowsDefaultsTypesAndBounds) {
  const Outcome help = run({"quantize", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.output,
              AllOf(HasSubstr("--max-shard-gb FLOAT:POSITIVE=5"), HasSubstr("--exclude TEXT=[lm_head] ..."),
                    HasSubstr("--format FORMAT=compressed-tensors"), HasSubstr("--smoothing FLOAT:FLOAT in [0 - 1]"),
                    HasSubstr("Example: quench quantize")));
  EXPECT_THAT(run({"config", "diff", "--help"}).output, HasSubstr("BEFORE CONFIG REQUIRED"));
  EXPECT_THAT(run({"eval", "--help"}).output, HasSubstr("--task NAME FILE ..."));
  EXPECT_THAT(run({"generate", "--help"}).output, HasSubstr("Excludes: --prompt --prompt-file"));
}

TEST_F(CommandLineOf, RunTakesItsOptionsFromTheEnvironmentToo) {
  ASSERT_EQ(::setenv("PET_NPROC_PER_NODE", "3", 1), 0);
  const Outcome three = run({"run", "--", "sh", "-c", "echo worker of $WORLD_SIZE"});
  const Outcome one = run({"run", "--nproc-per-node", "1", "--", "sh", "-c", "echo worker of $WORLD_SIZE"});
  ::unsetenv("PET_NPROC_PER_NODE");
  EXPECT_EQ(three.status, 0) << three.errors;
  EXPECT_THAT(three.output, HasSubstr("worker of 3"));
  EXPECT_THAT(one.output, HasSubstr("worker of 1"));
}

}  // namespace
}  // namespace quench
