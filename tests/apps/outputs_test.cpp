// Outputs of the verbs: no loss of user files; a failed write is an error.

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <chrono>
#include <csignal>
#include <set>
#include <thread>

#include "core/json/json.h"
#include "core/safetensors/safetensors.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

constexpr const char* kRun = R"({
  "model": {"model_type": "llama", "vocab_size": 300, "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
            "max_position_embeddings": 64, "tie_word_embeddings": true},
  "data": {"train": ["corpus.txt"], "tokenizer": "bytes", "seq_len": 16},
  "training": {"steps": 2, "micro_batch_size": 2, "dtype": "f32"},
  "metrics": {"tensorboard": false},
  "export": {"format": "hf", "folder": "model"},
  "run": {"folder": "run"}})";

// name -> contents of every file below a folder but the program's own output.
std::set<std::pair<std::string, std::string>> contents(const fs::path& folder) {
  std::set<std::pair<std::string, std::string>> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files.emplace(entry.path().lexically_relative(folder).string(), read_file(entry.path()));
  return files;
}

// One tiny trained run for all tests, which work on copies of its folder.
class Outputs : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    trained_ = std::make_unique<TempDir>();
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the cat sees a small house and the river " + std::to_string(i) + ".\n";
    write_file(*trained_ / "corpus.txt", text);
    write_file(*trained_ / "run.json", kRun);
    const std::vector<std::int64_t> ids{1, 2, 3, 4};
    write_safetensors(*trained_ / "batch.safetensors",
                      {{"input_ids", DType::i64, {1, 4}, std::as_bytes(std::span(ids))}});
    const Outcome outcome = run_program(trained_->path(), {"train", "run.json"});
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
  }
  static void TearDownTestSuite() { trained_.reset(); }

  Outputs() { fs::copy(trained_->path(), folder_.path(), fs::copy_options::recursive); }

  Outcome run(const std::vector<std::string>& arguments) { return run_program(folder_.path(), arguments); }
  // A script in which "quench" is the program; its exit status.
  int shell(const std::string& script) {
    write_file(folder_ / "script.sh", "cd '" + folder_.path().string() + "'\nquench() { '" + testing::program_path() +
                                          "' \"$@\"; }\n" + script + "\n");
    const int status = std::system(("bash '" + (folder_ / "script.sh").string() + "'").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void expect_refused(const std::vector<std::string>& arguments, const std::string& message) {
    const auto before = contents(folder_.path());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments[0] << ": " << outcome.output << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr(message));
    auto after = contents(folder_.path());
    for (const char* own : {"stdout.txt", "stderr.txt"})
      std::erase_if(after, [&](const auto& f) { return f.first == own; });
    for (const auto& file : before)
      EXPECT_TRUE(file.first.starts_with("std") || after.contains(file)) << file.first << " was changed";
  }

  TempDir folder_;

 private:
  static inline std::unique_ptr<TempDir> trained_;
};

TEST_F(Outputs, ExportNeverDestroysTheFolderThatItWritesTo) {
  for (const char* output : {"run", "run/checkpoints", "run/new", "."})
    expect_refused({"export", "--checkpoint", "run", "--output", output}, "choose another folder");
  fs::create_directory_symlink(folder_ / "run", folder_ / "link");
  expect_refused({"export", "--checkpoint", "run", "--output", "link"}, "choose another folder");
  expect_refused({"export", "--checkpoint", "run/checkpoints/step-2", "--output", "run"}, "choose another folder");
  expect_refused({"export", "--checkpoint", "model", "--output", "model"}, "choose another folder");

  write_file(folder_ / "model" / "README.md", "mine");
  expect_refused({"export", "--checkpoint", "run", "--output", "model"}, "README.md");
  EXPECT_EQ(run({"export", "--checkpoint", "run", "--output", "model", "--overwrite"}).status, 0);
  EXPECT_EQ(read_file(folder_ / "model" / "README.md"), "mine");
  EXPECT_EQ(run({"export", "--checkpoint", "run", "--output", "new"}).status, 0);
  EXPECT_EQ(run({"export", "--checkpoint", "run", "--output", "new"}).status, 0) << "an export replaces an export";
  EXPECT_EQ(run({"generate", "--model", "new", "--prompt", "the", "--max-new-tokens", "2"}).status, 0);
}

TEST_F(Outputs, ABadExportFolderIsReportedBeforeTraining) {
  write_file(folder_ / "model" / "README.md", "mine");
  expect_refused({"config", "check", "run.json"}, "README.md");
  expect_refused({"train", "run.json", "--run.folder=second"}, "README.md");
  EXPECT_FALSE(fs::exists(folder_ / "second"));
}

TEST_F(Outputs, OtherPeoplesFilesAreNotOverwritten) {
  write_file(folder_ / "thesis.txt", "mine");
  fs::create_directory(folder_ / "hand");
  write_file(folder_ / "hand" / "config.json", "{\"mine\": 1}");
  fs::create_directory(folder_ / "shards");
  write_file(folder_ / "shards" / "dataset.json", "{}");
  write_file(folder_ / "shards" / "notes.txt", "mine");
  const std::vector<std::string> forward{"forward", "--model", "model", "--input", "batch.safetensors", "--output"};
  const auto forward_to = [&](const std::string& output) {
    std::vector<std::string> arguments = forward;
    arguments.push_back(output);
    return arguments;
  };
  expect_refused({"report", "run", "--output", "thesis.txt"}, "no earlier output");
  expect_refused({"report", "run", "--output", "run/config.json"}, "reads");
  expect_refused(forward_to("batch.safetensors"), "reads");
  expect_refused(forward_to("model/model.safetensors"), "reads");
  expect_refused(forward_to("model/tokenizer.json"), "reads");
  expect_refused(forward_to("thesis.txt"), "no earlier output");
  expect_refused(forward_to("/dev/null"), "device");
  expect_refused({"tokenize", "train", "--input", "corpus.txt", "--vocab-size", "300", "--output", "model"},
                 "tokenizer.json");
  expect_refused({"tokenize", "--tokenizer", "bytes", "--input", "corpus.txt", "--output", "shards", "--overwrite"},
                 "notes.txt");
  expect_refused({"probe", "run.json", "--output", "run.json"}, "reads");
  expect_refused({"probe", "run.json", "--output", "thesis.txt"}, "no earlier output");
  expect_refused({"config", "cp", "demo", "thesis.txt"}, "no earlier output");
  expect_refused({"train", "run.json", "--run.folder=hand"}, "config.json");
  expect_refused({"train", "run.json", "--run.folder=model"}, "config.json");
}

TEST_F(Outputs, EarlierOutputsAreReplaced) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(run({"report", "run"}).status, 0);
    EXPECT_EQ(run({"report", "run", "--output", "page.html"}).status, 0);
    EXPECT_EQ(run({"forward", "--model", "model", "--input", "batch.safetensors", "--output", "o.safetensors"}).status,
              0);
    EXPECT_EQ(run({"config", "cp", "demo", "demo.json"}).status, 0);
    EXPECT_EQ(
        run({"tokenize", "--tokenizer", "bytes", "--input", "corpus.txt", "--output", "shards", "--overwrite"}).status,
        0);
  }
  write_file(folder_ / "demo.json", read_file(folder_ / "demo.json") + "// edited\n");
  EXPECT_EQ(run({"config", "cp", "demo", "demo.json"}).status, 2);
  EXPECT_EQ(run({"config", "cp", "demo", "demo.json", "--overwrite"}).status, 0);
}

TEST_F(Outputs, DevicesAreWrittenToAndNotReplaced) {
  if (::mknod((folder_ / "null").c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0)
    GTEST_SKIP() << "only root makes devices";
  EXPECT_EQ(run({"report", "run", "--output", "null"}).status, 0);
  EXPECT_EQ(run({"forward", "--model", "model", "--input", "batch.safetensors", "--output", "null"}).status, 2);
  EXPECT_EQ(run({"config", "cp", "demo", "null"}).status, 0);
  EXPECT_TRUE(fs::is_character_file(folder_ / "null"));
}

// Every verb that prints, and help: lost output is a failure.
TEST_F(Outputs, AFullStandardOutputIsAFailureOfEveryVerb) {
  for (const std::string command : {"--help",
                                    "--version",
                                    "train --help",
                                    "config ls",
                                    "config ls --json",
                                    "config cp demo new.json",
                                    "config check run.json",
                                    "config check run.json --json",
                                    "config print run.json",
                                    "config diff demo run.json",
                                    "config schema",
                                    "config docs",
                                    "estimate run.json",
                                    "estimate run.json --json",
                                    "eval --model model --data corpus.txt",
                                    "eval --model model --data corpus.txt --json",
                                    "generate --model model --prompt a --max-new-tokens 2",
                                    "generate --model model --prompt a --max-new-tokens 2 --json",
                                    "forward --model model --input batch.safetensors --output o.safetensors",
                                    "export --checkpoint run --output new",
                                    "inspect run",
                                    "inspect model --tensors",
                                    "inspect run/checkpoints/step-2 --json",
                                    "report run",
                                    "report run --json",
                                    "tokenize --tokenizer bytes --input corpus.txt --output shards",
                                    "tokenize train --input corpus.txt --vocab-size 300 --output tokenizer",
                                    "train run.json --run.folder=again --export.folder=again/export --json"}) {
    EXPECT_EQ(shell("quench " + command + " > /dev/full 2> errors.txt"), 1) << command;
    EXPECT_THAT(read_file(folder_ / "errors.txt"), HasSubstr("cannot write to standard output: No space left"))
        << command;
  }
  EXPECT_EQ(shell("quench generate --model model --prompt a --max-new-tokens 2 > /dev/full 2> errors.txt"), 1);
  EXPECT_THAT(read_file(folder_ / "errors.txt"), HasSubstr("ended by a failed write"));
}

TEST_F(Outputs, AClosedPipeIsNoReasonForAMessage) {
  for (const std::string disposition : {"", "trap '' PIPE; "}) {
    EXPECT_EQ(shell("(" + disposition + "sleep 0.2; quench config schema 2> errors.txt; echo $? > status.txt) | true"),
              0);
    EXPECT_EQ(read_file(folder_ / "errors.txt"), "");
    EXPECT_EQ(read_file(folder_ / "status.txt"), "141\n");
  }
  // A run continues, and says by its status that it did.
  EXPECT_EQ(
      shell("(sleep 0.2; quench train run.json --run.folder=again --export.folder=again/export; echo $? > status.txt) "
            "2> errors.txt | true"),
      0);
  EXPECT_EQ(read_file(folder_ / "status.txt"), "0\n");
  EXPECT_TRUE(fs::exists(folder_ / "again" / "export" / "model.safetensors"));
}

TEST_F(Outputs, ALimitOnFileSizesIsAnErrorThatNamesTheFile) {
  EXPECT_EQ(
      shell("(ulimit -f 1; quench config cp llama_110m big.json; "
            "quench forward --model model --input batch.safetensors --output o.safetensors) > out.txt 2> errors.txt"),
      1);
  EXPECT_THAT(read_file(folder_ / "errors.txt"), HasSubstr("o.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ / "o.safetensors"));
}

// One message that names the file, whichever verb is to write or read it.
TEST_F(Outputs, NamesThatNoFileSystemTakesAreOneMessage) {
  const std::string name(300, 'n');
  const std::vector<std::vector<std::string>> all = {
      {"tokenize", "--tokenizer", "bytes", "--input", "corpus.txt", "--output", name},
      {"tokenize", "train", "--input", "corpus.txt", "--output", name},
      {"quantize", "--model", "model", "--scheme", "int8_weight_only", "--output", name},
      {"export", "--checkpoint", "run", "--output", name},
      {"forward", "--model", "model", "--input", "batch.safetensors", "--output", name},
      {"report", "run", "--output", name},
      {"config", "cp", "llama_110m", name},
      {"train", "run.json", "--run.folder=" + name},
      {"train", "run.json", "--run.folder=other", "--export.folder=" + name},
      {"eval", "--model", name, "--data", "corpus.txt"},
      {"inspect", name},
      {"run", "--log-dir", name, "--", "true"},
  };
  for (const std::vector<std::string>& arguments : all) {
    const Outcome outcome = run(arguments);
    EXPECT_TRUE(outcome.status == 1 || outcome.status == 2) << arguments[0] << outcome.status;
    const std::size_t error = outcome.errors.find("error: ");
    ASSERT_NE(error, std::string::npos) << outcome.errors;
    EXPECT_EQ(outcome.errors.find('\n', error), outcome.errors.size() - 1) << outcome.errors;  // the last line
    EXPECT_THAT(outcome.errors, HasSubstr(name));
    EXPECT_THAT(outcome.errors, HasSubstr("File name too long"));
    EXPECT_THAT(outcome.errors, Not(HasSubstr("filesystem error")));
  }
}

TEST_F(Outputs, ThreadsThatNoMachineHasAreRefused) {
  for (const char* threads : {"100000", "-1"})
    expect_refused({"tokenize", "--tokenizer", "bytes", "--input", "corpus.txt", "--output", "s", "--threads", threads},
                   "--threads");
}

TEST_F(Outputs, EscapesFromFilesDoNotReachTheTerminal) {
  const auto expect_clean = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = run(arguments);
    for (const std::string& text : {outcome.output, outcome.errors})
      EXPECT_EQ(text.find('\x1b'), std::string::npos) << arguments[0] << ": " << text;
    return outcome;
  };
  const std::string config = read_file(folder_ / "model" / "config.json");
  std::string hostile = config;
  const auto type = hostile.find("llama");
  hostile.replace(type, 5, "x\\u001b[2J\\u009b31m");
  write_file(folder_ / "model" / "config.json", hostile);
  EXPECT_NE(expect_clean({"generate", "--model", "model", "--prompt", "a"}).status, 0);
  expect_clean({"inspect", "model"});

  write_file(
      folder_ / "bad.json",
      "{\"model\": {\"preset\": \"tiny\"}, \"tr\\u001b[31maining\": {}, \"run\": {\"name\": \"\\u001b]0;x\\u0007\"}}");
  const Outcome checked = expect_clean({"config", "check", "bad.json", "--no-files"});
  EXPECT_EQ(checked.status, 2);
  EXPECT_THAT(checked.errors, HasSubstr("\\x1b[31m"));
  expect_clean({"config", "check", "absent\x1b[2J.json"});
  expect_clean({"tokenize", "train", "--input", "corpus.txt", "--split-pattern", "(\x1b[2J", "--output", "t"});
  expect_clean({"trian\x1b[2J"});

  // Folders of a run, in all that training says, on the console and in its log.
  const std::string hostile_run = "new\x1b]0;x\x07";
  const Outcome trained = expect_clean({"train", "run.json", "--run.folder=" + hostile_run,
                                        "--export.folder=" + hostile_run + "/export", "--data.cache=cache\x1b[31m"});
  EXPECT_EQ(trained.status, 0) << trained.errors;
  EXPECT_THAT(trained.output, HasSubstr("new\\x1b]0;x\\x07"));
  EXPECT_EQ(read_file(folder_ / hostile_run / "log.txt").find('\x1b'), std::string::npos);
  expect_clean({"report", hostile_run});
  expect_clean({"generate", "--model", hostile_run + "/absent", "--prompt", "a"});

  // A path, in a table.
  fs::rename(folder_ / "run", folder_ / "run\x1b[2J");
  const Outcome listed = expect_clean({"inspect", "run\x1b[2J"});
  EXPECT_EQ(listed.status, 0);
  EXPECT_THAT(listed.output, HasSubstr("run\\x1b[2J"));
}

// Generated text is a result: a file gets it byte for byte.
TEST_F(Outputs, GeneratedTextIsUnchangedOutsideATerminal) {
  const Outcome outcome = run({"generate", "--model", "model", "--prompt", "a\x1b[1mb", "--max-new-tokens", "1"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, HasSubstr("a\x1b[1mb"));
  if (shell("command -v script > /dev/null") != 0) return;
  write_file(folder_ / "prompt.txt", "a\x1b[1mb");
  EXPECT_EQ(shell("export -f quench\n"
                  "SHELL=/bin/bash script -qec 'quench generate --model model --prompt-file prompt.txt "
                  "--max-new-tokens 1' /dev/null "
                  "< /dev/null > terminal.txt"),
            0);
  EXPECT_THAT(read_file(folder_ / "terminal.txt"), HasSubstr("a\\x1b[1mb"));
}

// A run whose checkpoints lie on a scratch disk: stop, resume, and every verb that takes the run folder.
TEST_F(Outputs, ARunWithItsCheckpointsElsewhereWorksLikeAnyOther) {
  for (const std::string how : {"key", "link"}) {
    const std::string run_folder = how + "-run", scratch = "scratch-" + how;
    std::vector<std::string> train{"train", "run.json", "--run.folder=" + run_folder,
                                   "--export.folder=" + how + "-model"};
    if (how == "key") {
      train.push_back("--checkpoint.folder=" + scratch);
    } else {
      fs::create_directory(folder_ / scratch);
      fs::create_directory(folder_ / run_folder);
      fs::create_directory_symlink("../" + scratch, folder_ / run_folder / "checkpoints");
    }
    const Outcome checked = run({"config", "check", "run.json", "--checkpoint.folder=" + scratch});
    EXPECT_EQ(checked.status, 0) << checked.errors;
    const Outcome first = run(train);
    EXPECT_EQ(first.status, 0) << first.errors;
    EXPECT_TRUE(fs::exists(folder_ / scratch / "step-2" / "manifest.json"));
    train.push_back("--training.steps=4");
    train.push_back("--checkpoint.allow_changes=[\"training.steps\"]");
    const Outcome resumed = run(train);
    EXPECT_EQ(resumed.status, 0) << resumed.errors;
    EXPECT_THAT(resumed.output + resumed.errors, HasSubstr("step 2"));
    EXPECT_TRUE(fs::exists(folder_ / scratch / "step-4" / "manifest.json"));
    EXPECT_THAT(run({"inspect", run_folder}).output, HasSubstr("step-4"));
    EXPECT_EQ(run({"generate", "--model", run_folder, "--prompt", "a", "--max-new-tokens", "1"}).status, 0);
    EXPECT_EQ(run({"export", "--checkpoint", run_folder, "--output", "from-" + how}).status, 0);
  }
}

TEST_F(Outputs, WhatAKilledExportLeavesGoesWithTheNextOne) {
  // The weights of a step are written once the folder is there; stop the program in between.
  std::string left;
  for (int attempt = 0; attempt < 200 && left.empty(); ++attempt) {
    const pid_t child = testing::start_program(folder_.path(), {"export", "--checkpoint", "run", "--output", "killed"});
    for (int i = 0; i < 20000 && left.empty(); ++i) {
      for (const auto& entry : fs::directory_iterator(folder_.path()))
        if (entry.path().filename().string().starts_with("killed.tmp-")) left = entry.path().filename().string();
      if (fs::exists(folder_ / "killed")) break;
    }
    ::kill(child, SIGKILL);
    testing::finish_program(folder_.path(), child);
    if (!left.empty() && !fs::exists(folder_ / left)) left.clear();
    fs::remove_all(folder_ / "killed");
  }
  ASSERT_FALSE(left.empty()) << "no export was caught at work";
  EXPECT_EQ(run({"export", "--checkpoint", "run", "--output", "killed"}).status, 0);
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    EXPECT_EQ(entry.path().string().find("killed.tmp-"), std::string::npos) << "left behind: " << entry.path();
}

TEST_F(Outputs, DeletingTheLockLetsNoSecondTrainerIn) {
  const pid_t first = testing::start_program(folder_.path(), {"train", "run.json", "--run.folder=long",
                                                              "--training.steps=100000", "--export.folder=long-model"});
  while (!fs::exists(folder_ / "long" / "metrics" / "metrics.jsonl"))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  fs::remove(folder_ / "long" / ".lock");
  EXPECT_EQ(shell("quench train run.json --run.folder=long --export.folder=long-model > second.txt 2>&1"), 4);
  EXPECT_THAT(read_file(folder_ / "second.txt"), HasSubstr("locked by"));
  ::kill(first, SIGTERM);
  EXPECT_EQ(testing::finish_program(folder_.path(), first).status, 128 + SIGTERM);
}

}  // namespace
}  // namespace quench
