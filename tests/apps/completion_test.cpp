// Shell completion: the program's candidates, and the bash script in an interactive shell.

#include <gmock/gmock.h>

#include <sstream>

#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Outcome;
using testing::run_program;
using ::testing::StartsWith;

class Completion : public ::testing::Test {
 protected:
  // Candidates without their help.
  std::vector<std::string> candidates(std::vector<std::string> words) {
    words.insert(words.begin(), {"completion", "candidates", "quench"});
    const Outcome outcome = run_program(folder_.path(), words);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    std::vector<std::string> found;
    std::istringstream lines(outcome.output);
    for (std::string line; std::getline(lines, line);) found.push_back(line.substr(0, line.find('\t')));
    return found;
  }

  testing::TempDir folder_;
};

TEST_F(Completion, EveryVerbOfTheHelpIsACandidate) {
  const std::vector<std::string> verbs = candidates({""});
  std::istringstream help(run_program(folder_.path(), {"--help"}).output);
  bool listed = false;
  int compared = 0;
  for (std::string line; std::getline(help, line);) {
    if (listed && line.starts_with("  ")) {
      std::string name;
      std::istringstream(line) >> name;
      EXPECT_THAT(verbs, Contains(name));
      ++compared;
    }
    listed = listed || line.starts_with("Verbs");
  }
  EXPECT_GT(compared, 10);
  EXPECT_THAT(candidates({"tok"}), ElementsAre("tokenize"));
  EXPECT_THAT(candidates({"config", "c"}), ElementsAre("cp", "check"));
  EXPECT_THAT(verbs, Not(Contains(":files")));
}

TEST_F(Completion, OptionsBelongToTheVerb) {
  EXPECT_THAT(candidates({"generate", "--pro"}), ElementsAre("--prompt", "--prompt-file", "--prompts"));
  EXPECT_THAT(candidates({"tokenize", "train", "--v"}), ElementsAre("--vocab-size"));
  EXPECT_THAT(candidates({"tokenize", "--v"}), Not(Contains("--vocab-size")));
  EXPECT_THAT(candidates({"generate", "--model", "m", "--pro"}), Contains("--prompt"));
  EXPECT_THAT(candidates({"generate", "--training."}), IsEmpty());
}

TEST_F(Completion, LaunchedVerbsAndHelpAreCompletedAsVerbsAre) {
  EXPECT_THAT(candidates({"run", "--nproc-per-node", "2", "tr"}), ElementsAre("train"));
  EXPECT_THAT(candidates({"run", "--standalone", "--", "tr"}), ElementsAre("train"));
  EXPECT_THAT(candidates({"run", "--nproc-per-node", "2", "train", "shake"}),
              ElementsAre("shakespeare_char", ":files"));
  EXPECT_THAT(candidates({"run", "--nproc-per-node", "2", "train", "demo", "--training.st"}),
              Contains("--training.steps="));
  EXPECT_THAT(candidates({"run", "--nproc"}), ElementsAre("--nproc-per-node"));
  EXPECT_THAT(candidates({"help", "tok"}), ElementsAre("tokenize"));
  EXPECT_THAT(candidates({"help", "config", "c"}), ElementsAre("cp", "check"));
}

TEST_F(Completion, ConfigsAndFilesStandWhereAConfigIsExpected) {
  EXPECT_THAT(candidates({"train", "shake"}), ElementsAre("shakespeare_char", ":files"));
  EXPECT_THAT(candidates({"config", "check", "shake"}), ElementsAre("shakespeare_char", ":files"));
  EXPECT_THAT(candidates({"config", "diff", "a.json", "shake"}), ElementsAre("shakespeare_char", ":files"));
  EXPECT_THAT(candidates({"config", "cp", "llama-3.2"}), ElementsAre("llama-3.2-1b", "llama-3.2-3b"));
  EXPECT_THAT(candidates({"config", "cp", "tiny", ""}), ElementsAre(":files"));
  EXPECT_THAT(candidates({"train", "demo", ""}), IsEmpty());
  EXPECT_THAT(candidates({"tune", "shake"}), IsEmpty());
  EXPECT_THAT(candidates({"tune", "--training.ep"}), ElementsAre("--training.epochs="));
}

TEST_F(Completion, ConfigKeysComeSectionBySection) {
  EXPECT_THAT(candidates({"train", "demo", "--tr"}), ElementsAre("--training."));
  const std::vector<std::string> keys = candidates({"train", "demo", "--training."});
  EXPECT_THAT(keys,
              AllOf(Contains("--training.steps="), Contains("--training.dtype="), Each(StartsWith("--training."))));
  EXPECT_THAT(candidates({"train", "demo", "--no-checkpoint.a"}), ElementsAre("--no-checkpoint.async"));
  EXPECT_THAT(candidates({"train", "demo", "~eval"}), ElementsAre("~evaluation."));
  EXPECT_THAT(candidates({"config", "print", "demo", "--training.st"}), ElementsAre("--training.steps="));
}

TEST_F(Completion, ValuesAreAcceptedByTheKey) {
  EXPECT_THAT(candidates({"train", "demo", "--training.dtype=b"}), ElementsAre("--training.dtype=bf16"));
  EXPECT_THAT(candidates({"train", "demo", "--training.dtype", "b"}), ElementsAre("bf16"));
  EXPECT_THAT(candidates({"train", "demo", "--recipe.name=float8_t"}), ElementsAre("--recipe.name=float8_tensorwise"));
  EXPECT_THAT(candidates({"train", "demo", "--model.preset=llama-3.2-1"}), ElementsAre("--model.preset=llama-3.2-1b"));
  EXPECT_THAT(candidates({"train", "demo", "--checkpoint.async=f"}), ElementsAre("--checkpoint.async=false"));
  EXPECT_THAT(candidates({"train", "demo", "--data.train=s"}), ElementsAre(":files"));
  EXPECT_THAT(candidates({"train", "demo", "--training.steps="}), IsEmpty());
  EXPECT_THAT(candidates({"generate", "--model", ""}), ElementsAre(":files"));
  EXPECT_THAT(candidates({"generate", "--max-new-tokens", ""}), IsEmpty());
  EXPECT_THAT(candidates({"tokenize", "--input", "a.txt", "b.txt", ""}), ElementsAre(":files"));
}

TEST_F(Completion, NamesOfTablesStandWhereAnOptionTakesOne) {
  const std::vector<std::string> schemes = candidates({"quantize", "--scheme", ""});
  EXPECT_THAT(schemes, AllOf(Contains("int4_weight_only_g32"), Contains("float8_dynamic"), Not(Contains(":files"))));
  EXPECT_THAT(candidates({"export", "--scheme=q8"}), ElementsAre("--scheme=q8_0"));
  EXPECT_THAT(candidates({"quantize", "--embeddings", ""}), schemes);
  EXPECT_THAT(candidates({"export", "--format", "compressed"}), ElementsAre("compressed-tensors"));
  EXPECT_THAT(candidates({"export", "--format", "p"}), ElementsAre("peft"));
  EXPECT_THAT(candidates({"quantize", "--method", "gp"}), ElementsAre("gptq"));
  EXPECT_THAT(candidates({"tokenize", "--format", "j"}), ElementsAre("jsonl", "json"));
}

TEST_F(Completion, EveryShellHasAScript) {
  for (const std::string& shell : candidates({"completion", ""})) {
    const Outcome script = run_program(folder_.path(), {"completion", shell});
    EXPECT_EQ(script.status, 0);
    EXPECT_THAT(script.output, ::testing::HasSubstr("completion candidates")) << shell;
  }
  EXPECT_THAT(candidates({"completion", ""}), ElementsAre("bash", "zsh", "fish"));
}

// Calls the bash script's function as bash does for a line with the cursor at its end, cut into words at blanks, = and
// :.
TEST_F(Completion, BashReplacesThePartBehindItsLastWordBreak) {
  testing::write_file(folder_ / "try.sh", R"(
source <("$1" completion bash)
try() {
  COMP_LINE=$1; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_POINT=${#COMP_LINE}
  _quench 2>/dev/null
  echo "${COMPREPLY[*]}"
}
q=$1
touch shards.bin shape.json
try "$q tok" "$q" tok
try "$q train shake" "$q" train shake
try "$q train demo --training.dtype=b" "$q" train demo --training.dtype = b
try "$q train demo --checkpoint.async=" "$q" train demo --checkpoint.async =
try "$q generate --prompt ROMEO: --temp" "$q" generate --prompt ROMEO : --temp
try "$q train sha" "$q" train sha
)");
  const std::string command =
      "cd '" + folder_.path().string() + "' && bash try.sh '" + testing::program_path() + "' > out.txt";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(testing::read_file(folder_ / "out.txt"),
            "tokenize\nshakespeare_char\nbf16\ntrue false\n--temperature\nshakespeare_char shape.json shards.bin\n");
}

}  // namespace
}  // namespace quench
