// The verb inspect, of models and adapters.

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/apps/run_project.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;

class InspectVerb : public testing::RunProject {
 protected:
  void SetUp() override {
    RunProject::SetUp();
    make_base();
  }
  [[nodiscard]] std::string inspect(const std::string& path) const {
    const Outcome outcome = run({"inspect", path});
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.output;
  }
};

// Root reads every folder: as another user then.
TEST_F(InspectVerb, AFolderThatCannotBeReadIsNamed) {
  const bool root = ::geteuid() == 0;
  fs::permissions(work(), fs::perms::others_read | fs::perms::others_exec, fs::perm_options::add);
  fs::permissions(work() / "base", root ? fs::perms::owner_all : fs::perms::none);
  const std::string user = root ? "setpriv --reuid 65534 --regid 65534 --clear-groups " : "";
  const std::string command =
      "cd '" + work().string() + "' && " + user + "'" + testing::program_path() + "' inspect base > said.txt 2>&1";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  fs::permissions(work() / "base", fs::perms::owner_all);
  const std::string said = testing::read_file(work() / "said.txt");
  EXPECT_THAT(said, AllOf(HasSubstr("base cannot be read: Permission denied"), Not(HasSubstr("dataset.json"))));
}

TEST_F(InspectVerb, NamesQuantizationAndChatTemplate) {
  EXPECT_THAT(inspect("base"), AllOf(HasSubstr("quantization     none\n"),
                                     HasSubstr("chat_template    chat_template.jinja, 14 bytes\n")));
  fs::rename(work() / "base/chat_template.jinja", work() / "aside");
  EXPECT_THAT(inspect("base"), HasSubstr("chat_template    none\n"));
  for (const std::string format : {"compressed-tensors", "torchao"}) {
    expect_ok(
        {"quantize", "--model", "base", "--scheme", "int4_weight_only_g32", "--format", format, "--output", format});
    EXPECT_THAT(inspect(format),
                AllOf(HasSubstr("quantization     " + format), HasSubstr("i4, groups of 32: 14 weights, "
                                                                         "model.layers.*.mlp.down_proj, ")));
  }
  const Json json = Json::parse(run({"inspect", "torchao", "--json"}).output);
  EXPECT_EQ(json.at("quantization").as_array().size(), 2u);
}

TEST_F(InspectVerb, ReadsGgufFiles) {
  expect_ok({"quantize", "--model", "base", "--scheme", "q8_0", "--format", "gguf", "--output", "few"});
  EXPECT_THAT(inspect("few"), HasSubstr("quantization     gguf:"));
  const std::string file = inspect("few/model.gguf");
  EXPECT_THAT(file, AllOf(HasSubstr("kind             GGUF file\n"), HasSubstr("architecture     LlamaForCausalLM\n"),
                          HasSubstr("tensors Q8_0"), HasSubstr("tokenizer        gpt2, 280 tokens\n"),
                          HasSubstr("chat_template    14 bytes\n")));
  EXPECT_THAT(run({"inspect", "few/model.gguf", "--tensors"}).output, HasSubstr("blk.0.attn_q.weight"));
  testing::write_file(work() / "bad.gguf", "GGUF????");
  EXPECT_NE(run({"inspect", "bad.gguf"}).status, 0);
}

TEST_F(InspectVerb, ReadsPeftFolders) {
  expect_ok({"train", "run.json", "--model.path=base", "--lora.rank=4", "--lora.alpha=8", "--training.steps=2",
             "--export.format=peft", "--export.folder=adapter"});
  EXPECT_THAT(
      inspect("adapter"),
      AllOf(HasSubstr("kind             PEFT adapter folder\n"), HasSubstr("base_model       base\n"),
            HasSubstr("adapters         lora r4, alpha 8, dropout 0\n"), HasSubstr("target_modules   down_proj"),
            HasSubstr("adapted_layers   14\n"), HasSubstr("adapter_model.safetensors")));
  Json config = Json::parse_file(work() / "adapter/adapter_config.json");
  config.set("peft_type", "IA3");
  testing::write_file(work() / "adapter/adapter_config.json", config.dump());
  EXPECT_THAT(inspect("adapter"), HasSubstr("\"IA3\", cannot be used here: "));
}

// Opening a pipe would wait for a writer.
TEST_F(InspectVerb, PipesInPlaceOfFilesAreRefusedAtOnce) {
  const auto pipe = [&](const std::string& name) {
    fs::remove(work() / name);
    ASSERT_EQ(::mkfifo((work() / name).c_str(), 0600), 0);
  };
  pipe("pipe");
  pipe("pipe.gguf");
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"generate", "--model", "base", "--tokenizer", "pipe", "--prompt", "a"},
           {"tokenize", "--tokenizer", "pipe", "--input", "corpus.txt", "--output", "s"},
           {"tokenize", "--tokenizer", "tokenizer", "--input", "pipe", "--output", "s"},
           {"eval", "--model", "base", "--data", "pipe"},
           {"generate", "--model", "base", "--prompt-file", "pipe"},
           {"train", "pipe"},
           {"train", "run.json", "--data.train=pipe"},
           {"train", "run.json", "--data.tokenizer=pipe"},
           {"inspect", "pipe"},
           {"inspect", "pipe.gguf"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_NE(outcome.status, 0) << arguments[0];
    EXPECT_THAT(outcome.errors, HasSubstr("regular file")) << arguments[0];
  }
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}) {
    fs::remove_all(work() / "copy");
    fs::copy(work() / "base", work() / "copy");
    pipe(std::string("copy/") + file);
    const Outcome outcome = run({"generate", "--model", "copy", "--prompt", "a"});
    EXPECT_NE(outcome.status, 0) << file;
    EXPECT_THAT(outcome.errors, HasSubstr(std::string(file) + " is not a regular file"));
  }
}

}  // namespace
}  // namespace quench
