// Console output and its streams: unknown verbs, help, versions, quiet and JSON output, a run's log file.

#include <gmock/gmock.h>

#include <cstdlib>
#include <regex>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

class Console : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 300; ++i) text += fmt::format("line {} of a text with {} words\n", i, i * i % 97);
    write_file(folder_ / "corpus.txt", text);
    write_file(folder_ / "run.json", R"({
      "model": {"model_type": "llama", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 64,
                "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                "max_position_embeddings": 128, "tie_word_embeddings": false},
      "data": {"train": ["corpus.txt"], "tokenizer": "bytes", "seq_len": 32},
      "training": {"steps": 4, "micro_batch_size": 2, "dtype": "f32"},
      "metrics": {"log_every": 1}, "run": {"folder": "run"}})");
  }
  Outcome run(const std::vector<std::string>& arguments) { return run_program(folder_.path(), arguments); }

  TempDir folder_;
};

TEST_F(Console, MistypedVerbsNameTheNearestAndAll) {
  const Outcome verb = run({"trian", "run.json"});
  EXPECT_EQ(verb.status, 2);
  EXPECT_THAT(verb.errors, AllOf(HasSubstr("unknown verb 'trian'; did you mean 'train'?"),
                                 HasSubstr("verbs are train, tune, run, tokenize, distill-targets, best-of, eval")));
  const Outcome nested = run({"config", "chekc", "run.json"});
  EXPECT_EQ(nested.status, 2);
  EXPECT_THAT(nested.errors, AllOf(HasSubstr("unknown verb 'config chekc'; did you mean 'config check'?"),
                                   HasSubstr("verbs of config are ls, cp, check"), Not(HasSubstr("docs"))));
  EXPECT_THAT(run({"frobnicate"}).errors, Not(HasSubstr("did you mean")));
}

TEST_F(Console, HelpIsGivenAfterTheConfigToo) {
  for (const std::string verb : {"train", "estimate", "probe"}) {
    const Outcome outcome = run({verb, "run.json", "--help"});
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_THAT(outcome.output, HasSubstr("Usage: quench " + verb + " CONFIG"));
    EXPECT_EQ(run({verb, "run.json", "-h"}).output, outcome.output);
  }
}

TEST_F(Console, VersionNamesCommitCompilerAndLibraries) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.status, 0);
  for (const char* part : {"quench ", "commit ", "compiler ", "PCRE2 ", "SentencePiece ", "utf8proc ", "spdlog ",
                           "fmt ", "nlohmann-json ", "xxHash "})
    EXPECT_THAT(outcome.output, HasSubstr(part));
#if defined(__x86_64__)
  EXPECT_THAT(outcome.output, HasSubstr("oneDNN "));
#endif
}

TEST_F(Console, TrainJsonIsAllOfStandardOutput) {
  const Outcome outcome = run({"train", "run.json", "--device=cpu", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(Json::parse(outcome.output).at("step").as_int(), 4);
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("step 4/4"), HasSubstr("model: LlamaForCausalLM")));
}

TEST_F(Console, QuietRunsSayNothingAndKeepTheirLog) {
  const Outcome quiet = run({"train", "run.json", "--device=cpu", "--quiet", "--training.steps=2"});
  ASSERT_EQ(quiet.status, 0) << quiet.errors;
  EXPECT_EQ(quiet.output, "");
  EXPECT_EQ(quiet.errors, "");
  const Outcome errors_only = run({"train", "run.json", "--device=cpu", "--metrics.log_level=error"});
  ASSERT_EQ(errors_only.status, 0) << errors_only.errors;
  EXPECT_EQ(errors_only.output, "");
  EXPECT_EQ(errors_only.errors, "");
  // Both starts, in order.
  const std::string log = read_file(folder_ / "run/log.txt");
  EXPECT_THAT(log, AllOf(HasSubstr("model: LlamaForCausalLM"), HasSubstr("step 2/2"), HasSubstr("resumed from "),
                         HasSubstr("step 4/4"), HasSubstr("info: saved ")));
  EXPECT_LT(log.find("step 2/2"), log.find("step 4/4"));
}

TEST_F(Console, LogHoldsWhatTheConsoleShows) {
  const Outcome outcome = run({"train", "run.json", "--device=cpu"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const std::string log = read_file(folder_ / "run/log.txt");
  for (const std::string& text : {outcome.output, outcome.errors}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_THAT(log, HasSubstr(line + "\n"));
  }
}

TEST_F(Console, HubNamesAreAnsweredWithTheDownload) {
  const std::string hint = "`quench pull hf:meta-llama/Llama-3.2-1B`";
  EXPECT_THAT(run({"generate", "--model", "meta-llama/Llama-3.2-1B", "--prompt", "x"}).errors, HasSubstr(hint));
  EXPECT_THAT(run({"train", "finetune_llama-3.2-1b", "--model.path=meta-llama/Llama-3.2-1B"}).errors, HasSubstr(hint));
}

// Free memory varies.
std::string without_free_memory(const std::string& text) {
  return std::regex_replace(text, std::regex("[0-9]+ MiB are available"), "");
}

// The one judgement: what train refuses, check refuses in the same words.
TEST_F(Console, TrainAndCheckRefuseAlike) {
  for (const std::string refused :
       {"--lora.rank=0", "--parallel.shard=0", "--parallel.expert=2", "--export.scheme=q8_0",
        "--model.architectures=Qwen3ForCausalLM", "--model.num_experts=4", "--model.sliding_window=8",
        "--training.offload_layers=1", "--optimizer.offload_ratio=0.5", "--training.recompute_mlp_layers=1",
        "--training.micro_batch_size=16777216", "--recipe.filter.exclude=*.w_proj", "--model.vocab_size=2000000000",
        "--data.train=absent.txt"}) {
    std::vector<std::string> arguments{"train", "run.json", "--device=cpu", refused};
    if (refused.starts_with("--recipe.filter")) arguments.push_back("--recipe.name=float8_rowwise");
    const Outcome train = run(arguments);
    arguments.erase(arguments.begin());
    arguments.insert(arguments.begin(), {"config", "check"});
    const Outcome check = run(arguments);
    EXPECT_NE(train.status, 0) << refused;
    EXPECT_EQ(check.status, train.status) << refused;
    EXPECT_EQ(without_free_memory(check.errors), without_free_memory(train.errors)) << refused;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run")) << refused;
  }
  const Outcome json = run({"config", "check", "run.json", "--device=cpu", "--optimizer.offload_ratio=0.5", "--json"});
  EXPECT_EQ(Json::parse(json.output).at("issues").as_array()[0].at("key").as_string(), "optimizer.offload_ratio");
  EXPECT_EQ(run({"config", "check", "run.json", "--device=cpu"}).output, "run.json: valid\n");
}

// As README has it, on a small model of the same kind: no held-out data, which the embedded config's are not.
TEST_F(Console, DocumentedFineTuneNeedsNoValidationData) {
  write_file(folder_ / "my.jsonl", R"({"text": "the cat sees the river"}
{"text": "a dog likes the morning, and my friend an apple"}
{"text": "the old king remembers a small house by the river, and nobody else does"}
)");
  ASSERT_EQ(run({"train", "run.json", "--device=cpu", "--export.folder=model", "--quiet"}).status, 0);
  const std::vector<std::string> fine_tune{"train",
                                           "finetune_llama-3.2-1b",
                                           "--device=cpu",
                                           "--model.path=model",
                                           "--data.train=my.jsonl",
                                           "--data.tokenizer=bytes",
                                           "--data.seq_len=16",
                                           "--training.micro_batch_size=1",
                                           "--training.global_batch_size=2",
                                           "--lr_schedule.warmup_steps=0"};
  const Outcome outcome = run(fine_tune);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, Not(HasSubstr("validation")));
  // A warmup that the records do not last for: the key is named.
  std::vector<std::string> warming = fine_tune;
  warming.back() = "--lr_schedule.warmup_steps=20";
  warming.push_back("--run.folder=other");
  EXPECT_THAT(run(warming).errors, HasSubstr("lr_schedule.warmup_steps: 20 steps of warmup exceed the "));
  std::vector<std::string> asked = fine_tune;
  asked.push_back("--evaluation.interval=5");
  const Outcome refused = run(asked);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("data.validation and evaluation.prompts are empty"));
}

// libgomp tells on standard error what it read when it was loaded.
TEST_F(Console, ThreadsSpinBrieflyUnlessTheUserSaysOtherwise) {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  const std::string before = policy == nullptr ? "" : policy;
  ::setenv("OMP_DISPLAY_ENV", "verbose", 1);
  ::unsetenv("OMP_WAIT_POLICY");
  const std::string ours = run({"--version"}).errors;
  ::setenv("GOMP_SPINCOUNT", "77", 1);
  const std::string theirs = run({"--version"}).errors;
  ::unsetenv("GOMP_SPINCOUNT");
  ::unsetenv("OMP_DISPLAY_ENV");
  if (!before.empty()) ::setenv("OMP_WAIT_POLICY", before.c_str(), 1);
  EXPECT_THAT(ours, HasSubstr("GOMP_SPINCOUNT = '3000'"));
  EXPECT_THAT(theirs, AllOf(HasSubstr("GOMP_SPINCOUNT = '77'"), Not(HasSubstr("'3000'"))));
}

}  // namespace
}  // namespace quench
