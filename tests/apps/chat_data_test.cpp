// Training on chats in JSON lines.

#include <gmock/gmock.h>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::TempDir;
using testing::write_file;

class ChatData : public ::testing::Test {
 protected:
  ChatData() {
    std::string chats, words;
    for (int i = 0; i < 60; ++i) {
      const std::string question = "What is " + std::to_string(i) + " and one?", answer = std::to_string(i + 1) + ".";
      chats += R"({"messages":[{"role":"user","content":")" + question + R"("},{"role":"assistant","content":")" +
               answer + "\"}]}\n";
      words += question + " " + answer + "\n";
    }
    write_file(folder_ / "chats.jsonl", chats);
    write_file(folder_ / "words.txt", words);
    write_file(folder_ / "run.json", R"({
      "model": {"model_type": "qwen2", "vocab_size": 300, "hidden_size": 16, "intermediate_size": 24,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": true},
      "data": {"train": ["chats.jsonl"], "tokenizer": "tokenizer", "seq_len": 32},
      "training": {"steps": 2, "micro_batch_size": 2, "dtype": "f32"},
      "run": {"folder": "run"}})");
  }

  // A tokenizer whose vocabulary has these tokens.
  void train_tokenizer(const std::vector<std::string>& special) {
    std::vector<std::string> arguments{"tokenize",     "train", "--input",  "words.txt",
                                       "--vocab-size", "280",   "--output", "tokenizer"};
    for (const std::string& token : special) arguments.insert(arguments.end(), {"--special", token});
    const Outcome outcome = run_program(folder_.path(), arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.errors;
  }

  TempDir folder_;
};

TEST_F(ChatData, TheTemplateOfTheTokenizerIsTaken) {
  train_tokenizer({"<|im_start|>", "<|im_end|>"});
  const Outcome automatic = run_program(folder_.path(), {"train", "run.json"});
  EXPECT_EQ(automatic.status, 0) << automatic.errors;
  EXPECT_THAT(automatic.output, HasSubstr("target mask"));
  EXPECT_EQ(
      run_program(folder_.path(), {"train", "run.json", "--run.folder=named", "--data.chat_template=chatml"}).status,
      0);
  const Outcome other =
      run_program(folder_.path(), {"train", "run.json", "--run.folder=other", "--data.chat_template=llama3"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.errors, HasSubstr("<|start_header_id|>"));
  EXPECT_THAT(other.errors, HasSubstr("data.chat_template"));
  const Outcome unknown = run_program(folder_.path(), {"train", "run.json", "--data.chat_template=alpaca"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.errors, HasSubstr("llama2"));
}

TEST_F(ChatData, ATokenizerWithoutATemplateIsSaidWithTheKey) {
  train_tokenizer({});
  const Outcome outcome = run_program(folder_.path(), {"train", "run.json"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("data.chat_template"));
}

}  // namespace
}  // namespace quench
