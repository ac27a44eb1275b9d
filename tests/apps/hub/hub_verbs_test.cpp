// quench pull and quench push as a user runs them, against a server on this machine.

#include <gmock/gmock.h>

#include <csignal>
#include <sstream>
#include <thread>

#include "core/json/json.h"
#include "tests/apps/program.h"
#include "tests/data/hub/environment.h"
#include "tests/hub_server/hub_server.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Behaviour;
using ::testing::ElementsAre;
using testing::finish_program;
using ::testing::HasSubstr;
using testing::HubEnvironment;
using testing::HubServer;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;
using testing::run_program;
using testing::ServedFile;
using testing::start_program;
using testing::TempDir;
using testing::write_file;

constexpr const char* kToken = "hf_verysecret";

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

class HubVerbs : public ::testing::Test {
 protected:
  void SetUp() override {
    environment_.set("HF_ENDPOINT", server_.endpoint());
    environment_.set("HF_HOME", folder_ / "home");
  }

  Outcome run(const std::vector<std::string>& arguments) { return run_program(folder_.path(), arguments); }

  // A command line as it is printed, through the shell.
  Outcome run_line(const std::string& line) {
    const std::string path = fs::path(testing::program_path()).parent_path();
    const std::string command =
        fmt::format("cd '{}' && PATH='{}':$PATH && {} > line.txt 2>&1", folder_.path().string(), path, line);
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), read_file(folder_ / "line.txt"), {}};
  }

  // Exported model of a run of one step, in folder "model".
  void make_model() {
    std::string text;
    for (int i = 0; i < 300; ++i) text += fmt::format("line {} of a text with {} words\n", i, i * i % 97);
    write_file(folder_ / "corpus.txt", text);
    write_file(folder_ / "run.json", R"({
      "model": {"model_type": "llama", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 64,
                "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                "max_position_embeddings": 128, "tie_word_embeddings": false},
      "data": {"train": ["corpus.txt"], "tokenizer": "tokenizer", "seq_len": 32},
      "training": {"steps": 1, "micro_batch_size": 2, "dtype": "f32"},
      "lr_schedule": {"warmup_steps": 0}, "run": {"folder": "run"}})");
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"tokenize", "train", "--input", "corpus.txt", "--vocab-size", "300", "--output",
                                   "tokenizer"},
          {"train", "run.json", "--device=cpu"},
          {"export", "--checkpoint", "run", "--format", "hf", "--output", "model"}}) {
      const Outcome outcome = run(command);
      ASSERT_EQ(outcome.status, 0) << outcome.errors;
    }
  }

  void serve_model() {
    std::map<std::string, ServedFile> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "model"))
      files[entry.path().filename()] = {read_file(entry.path()), entry.path().extension() == ".safetensors"};
    server_.set_files("org/model", files);
  }

  void serve_large(std::size_t bytes) {
    content_.assign(bytes, 'x');
    for (std::size_t i = 0; i < bytes; i += 7) content_[i] = static_cast<char>(i / 7);
    server_.set_files("org/large", {{"config.json", {"{}", false}}, {"model.safetensors", {content_, true}}});
  }

  fs::path blobs() { return folder_ / "home" / "hub" / "models--org--large" / "blobs"; }

  // Waits until this many bytes of the large file have arrived.
  void await_part(std::uint64_t bytes) {
    const fs::path part = blobs() / (testing::sha256_of(content_) + ".incomplete");
    std::error_code error;
    for (int i = 0; i < 3000; ++i) {
      if (const auto size = fs::file_size(part, error); !error && size >= bytes) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "nothing arrives";
  }

  HubEnvironment environment_;
  HubServer server_;
  TempDir folder_;
  std::string content_;
};

TEST_F(HubVerbs, PulledModelIsUsedByItsName) {
  make_model();
  serve_model();
  const Outcome before = run({"generate", "--model", "hf:org/model", "--prompt", "line"});
  EXPECT_EQ(before.status, 1);
  EXPECT_THAT(before.errors, HasSubstr("download it with `quench pull hf:org/model`"));
  EXPECT_THAT(run({"train", "run.json", "--model.path=hf:org/model"}).errors, HasSubstr("`quench pull hf:org/model`"));

  const Outcome pull = run({"pull", "hf:org/model"});
  ASSERT_EQ(pull.status, 0) << pull.errors;
  EXPECT_EQ(last_line(pull.output), "quench generate --model hf:org/model --prompt \"Hello\"");
  const Outcome next = run_line(last_line(pull.output) + " --max-new-tokens 2 --device cpu");
  EXPECT_EQ(next.status, 0) << next.output;
  EXPECT_EQ(run({"inspect", "hf:org/model"}).status, 0);

  write_file(folder_ / "tune.json", R"({
      "model": {"path": "hf:org/model"}, "data": {"train": ["corpus.txt"], "seq_len": 32},
      "training": {"steps": 1, "micro_batch_size": 2, "dtype": "f32"},
      "lr_schedule": {"warmup_steps": 0}, "run": {"folder": "tuned"}})");
  const Outcome tune = run({"train", "tune.json", "--device=cpu"});
  EXPECT_EQ(tune.status, 0) << tune.errors;
  // The run records the commit that it started from.
  EXPECT_THAT(run({"config", "print", "tune.json"}).output, HasSubstr("snapshots/" + server_.commit("org/model")));
}

TEST_F(HubVerbs, FolderIsNamedInTheNextCommand) {
  make_model();
  serve_model();
  const Outcome pull = run({"pull", "hf:org/model", "--local-dir", "with space"});
  ASSERT_EQ(pull.status, 0) << pull.errors;
  EXPECT_EQ(last_line(pull.output), "quench generate --model 'with space' --prompt \"Hello\"");
  EXPECT_EQ(run_line(last_line(pull.output) + " --max-new-tokens 2 --device cpu").status, 0);
}

TEST_F(HubVerbs, DryRunListsAndWritesNothing) {
  serve_large(1000);
  const Outcome dry = run({"pull", "hf:org/large", "--dry-run"});
  EXPECT_EQ(dry.status, 0) << dry.errors;
  EXPECT_THAT(dry.output,
              AllOf(HasSubstr("1.0 kB"), HasSubstr("model.safetensors"), HasSubstr("2 files of hf:org/large")));
  EXPECT_FALSE(fs::exists(folder_ / "home"));
  const Json json = Json::parse(run({"pull", "hf:org/large", "--json"}).output);
  EXPECT_EQ(json.at("commit").as_string(), server_.commit("org/large"));
  EXPECT_EQ(json.at("fetched_files").as_int(), 2);
}

TEST_F(HubVerbs, KilledDownloadContinues) {
  serve_large(4'000'000);
  server_.set({.chunk_pause_ms = 20});
  const pid_t child = start_program(folder_.path(), {"pull", "hf:org/large"});
  await_part(1'000'000);
  ::kill(child, SIGKILL);
  EXPECT_EQ(finish_program(folder_.path(), child).status, 128 + SIGKILL);
  EXPECT_FALSE(fs::exists(blobs() / testing::sha256_of(content_)));
  server_.set({});
  server_.forget_requests();
  const Outcome again = run({"pull", "hf:org/large"});
  ASSERT_EQ(again.status, 0) << again.errors;
  EXPECT_EQ(read_file(blobs() / testing::sha256_of(content_)), content_);
  std::vector<std::uint64_t> begins;
  for (const testing::SeenRequest& seen : server_.requests())
    if (seen.at_storage && seen.range.starts_with("bytes=")) begins.push_back(std::stoull(seen.range.substr(6)));
  EXPECT_THAT(begins, ElementsAre(::testing::Ge(1'000'000U)));
}

TEST_F(HubVerbs, InterruptedDownloadSaysHowItContinues) {
  serve_large(4'000'000);
  server_.set({.chunk_pause_ms = 20});
  const pid_t child = start_program(folder_.path(), {"pull", "hf:org/large"});
  await_part(500'000);
  ::kill(child, SIGINT);
  const Outcome stopped = finish_program(folder_.path(), child);
  EXPECT_EQ(stopped.status, 130);
  EXPECT_THAT(stopped.errors, AllOf(HasSubstr("stopped by Ctrl-C"), HasSubstr("the same command continues")));
  server_.set({});
  EXPECT_EQ(run({"pull", "hf:org/large"}).status, 0);
  EXPECT_EQ(read_file(blobs() / testing::sha256_of(content_)), content_);
}

TEST_F(HubVerbs, TwoProcessesFetchAFileOnce) {
  serve_large(2'000'000);
  server_.set({.chunk_pause_ms = 10});
  fs::create_directories(folder_ / "other");
  const pid_t first = start_program(folder_.path(), {"pull", "hf:org/large"});
  const pid_t second = start_program(folder_ / "other", {"pull", "hf:org/large"});
  const Outcome one = finish_program(folder_.path(), first), two = finish_program(folder_ / "other", second);
  EXPECT_EQ(one.status, 0) << one.errors;
  EXPECT_EQ(two.status, 0) << two.errors;
  EXPECT_LE(server_.sent_bytes(), 2'000'010U);
  EXPECT_EQ(read_file(blobs() / testing::sha256_of(content_)), content_);
}

TEST_F(HubVerbs, TokenIsInNoOutput) {
  make_model();
  serve_model();
  environment_.set("HF_TOKEN", kToken);
  environment_.set("QUENCH_LOG_LEVEL", "trace");
  std::string all;
  const auto add = [&](const Outcome& outcome, int status) {
    EXPECT_EQ(outcome.status, status) << outcome.errors;
    all += outcome.output + outcome.errors;
  };
  server_.set({.token = kToken, .busy = 1, .cut = 1, .cut_after = 1000});
  add(run({"pull", "hf:org/model"}), 0);
  add(run({"push", "model", "hf:me/model"}), 0);
  server_.set({.token = "another", .error_message = std::string("bad token ") + kToken});
  add(run({"pull", "hf:org/model"}), 1);
  add(run({"push", "model", "hf:me/model"}), 1);
  server_.set({.gated = true, .error_message = std::string("bad token ") + kToken});
  add(run({"pull", "hf:org/model"}), 1);
  environment_.set("HF_TOKEN", std::string(kToken) + " " + kToken);
  add(run({"pull", "hf:org/model"}), 2);
  EXPECT_THAT(all, Not(HasSubstr(kToken)));
  EXPECT_THAT(all, Not(HasSubstr("secret-signature")));
  EXPECT_THAT(all, HasSubstr("http: GET"));  // the most verbose level was on
}

TEST_F(HubVerbs, OfflineUsesTheCacheAlone) {
  serve_large(1000);
  ASSERT_EQ(run({"pull", "hf:org/large"}).status, 0);
  environment_.set("HF_HUB_OFFLINE", "1");
  server_.forget_requests();
  const Outcome cached = run({"pull", "hf:org/large"});
  EXPECT_EQ(cached.status, 0) << cached.errors;
  EXPECT_THAT(cached.errors, HasSubstr("HF_HUB_OFFLINE"));
  const Outcome absent = run({"pull", "hf:org/absent"});
  EXPECT_EQ(absent.status, 1);
  EXPECT_THAT(absent.errors, HasSubstr("not in the cache"));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(HubVerbs, PushTakesTheModelAndNothingElse) {
  make_model();
  write_file(folder_ / "model" / "train.log", "log");
  write_file(folder_ / "model" / ".env", kToken);
  environment_.set("HF_TOKEN", kToken);
  server_.set({.token = kToken});
  const Outcome dry = run({"push", "model", "hf:me/model", "--dry-run"});
  EXPECT_EQ(dry.status, 0) << dry.errors;
  EXPECT_THAT(dry.output, AllOf(HasSubstr("model.safetensors"), HasSubstr("stay here: .env, train.log")));
  EXPECT_TRUE(server_.requests().empty());

  const Outcome push = run({"push", "model", "hf:me/model", "--private", "--message", "Mine"});
  ASSERT_EQ(push.status, 0) << push.errors;
  EXPECT_EQ(last_line(push.output), "quench pull hf:me/model");
  const auto files = server_.files("me/model");
  EXPECT_EQ(files.count("train.log") + files.count(".env"), 0U);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "README.md"})
    EXPECT_EQ(files.at(name).content, read_file(folder_ / "model" / name)) << name;
  EXPECT_THAT(run({"push", "model", "hf:me/model"}).output, HasSubstr("files already"));
  // The pushed files come back unchanged.
  ASSERT_EQ(run_line(last_line(push.output) + " --local-dir back").status, 0);
  EXPECT_EQ(read_file(folder_ / "back" / "model.safetensors"), read_file(folder_ / "model" / "model.safetensors"));
}

TEST_F(HubVerbs, PushOfOtherFoldersIsRefused) {
  make_model();
  environment_.set("HF_TOKEN", kToken);
  const Outcome run_folder = run({"push", "run", "hf:me/model"});
  EXPECT_EQ(run_folder.status, 2);
  EXPECT_THAT(run_folder.errors, HasSubstr("write a model folder with `quench export`"));
  fs::create_directories(folder_ / "empty");
  EXPECT_EQ(run({"push", "empty", "hf:me/model"}).status, 1);
  write_file(folder_ / "empty" / "config.json", "{\"model_type\": \"llama\"}");
  EXPECT_THAT(run({"push", "empty", "hf:me/model"}).errors, HasSubstr("has no weights"));
  EXPECT_THAT(run({"push", "model", "hf:datasets/me/model"}).errors, HasSubstr("is a data set"));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(HubVerbs, WrongNamesAreUsageErrors) {
  for (const std::string name : {"hf:a/b/c", "hf:../x", "hf:a/b@x y"}) EXPECT_EQ(run({"pull", name}).status, 2) << name;
  EXPECT_THAT(run({"pull", "hf:a/b", "--repo-type", "space"}).errors, HasSubstr("known: model, dataset"));
  EXPECT_THAT(run({"pull", "hf:a/b@v1", "--revision", "v2"}).errors, HasSubstr("omit one of the two"));
  EXPECT_TRUE(server_.requests().empty());
}

}  // namespace
}  // namespace quench
