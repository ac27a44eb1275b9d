// model.add_tokens as a user meets it: shards by the config, a chat model that stops on its own token, its adapter.

#include <gmock/gmock.h>

#include <cstdlib>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

class NewTokenVerbs : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string chats, text;
    for (int i = 0; i < 40; ++i) {
      const char letter = static_cast<char>('a' + i % 26);
      chats += fmt::format(
          R"({{"messages": [{{"role": "user", "content": "{0}"}}, {{"role": "assistant", "content": "{0}"}}]}})"
          "\n",
          letter);
      text += std::string(40, letter) + "\n\n";
    }
    write_file(folder_ / "chat.jsonl", chats);
    write_file(folder_ / "text.txt", text);
    write_file(folder_ / "base.json", R"({"model": {"model_type": "llama", "vocab_size": 259, "hidden_size": 32,
      "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
      "tie_word_embeddings": false}, "data": {"train": ["text.txt"], "tokenizer": "bytes", "seq_len": 64},
      "training": {"steps": 2, "micro_batch_size": 2, "dtype": "f32"}, "export": {"folder": "base"}})");
    write_file(folder_ / "chat.json", R"({"model": {"path": "base", "add_tokens": ["<|im_start|>", "<|im_end|>"]},
      "data": {"train": ["chat.jsonl"], "seq_len": 64, "chat_template": "chatml"},
      "training": {"steps": 60, "micro_batch_size": 8, "dtype": "f32"}, "optimizer": {"lr": 1e-2},
      "export": {"folder": "chat"}})");
    shell("$QUENCH train base.json --device=cpu");
  }
  // In the folder; the standard output, or its end with errors.
  std::string shell(const std::string& command, int status = 0) {
    const std::string line = "cd '" + folder_.path().string() + "' && export OMP_NUM_THREADS=1 QUENCH='" +
                             testing::program_path() + "' && { " + command + " ; } > stdout.txt 2> stderr.txt";
    const int got = std::system(line.c_str());
    EXPECT_EQ(WEXITSTATUS(got), status) << command << "\n" << read_file(folder_ / "stderr.txt");
    return status == 0 ? read_file(folder_ / "stdout.txt") : read_file(folder_ / "stderr.txt");
  }
  [[nodiscard]] std::string answer(const std::string& model) {
    const Json json =
        Json::parse(shell("$QUENCH generate --device cpu --chat --prompt b --max-new-tokens 20 --json " + model));
    EXPECT_TRUE(json.at("stopped").as_bool()) << json.dump();
    EXPECT_EQ(json.at("tokens").as_array().back().as_int(), 260) << json.dump();
    return json.at("text").as_string();
  }

  TempDir folder_;
};

TEST_F(NewTokenVerbs, ExportedModelsProduceAndStopOnThem) {
  shell("$QUENCH train chat.json --device=cpu");
  EXPECT_EQ(answer("--model chat").size(), 1u);
  EXPECT_THAT(shell("$QUENCH inspect chat"), HasSubstr("261 tokens"));
  // GGUF: control tokens, and rows without one.
  shell(
      "$QUENCH train chat.json --device=cpu --run.folder=g --export.format=gguf --export.scheme=q8_0 "
      "--model.pad_vocab_to_multiple_of=64 --export.folder=gguf");
  EXPECT_EQ(answer("--model gguf").size(), 1u);
  shell(
      "$QUENCH train chat.json --device=cpu --run.folder=c --export.format=compressed-tensors "
      "--export.scheme=int8_weight_only --export.folder=codes");
  EXPECT_EQ(answer("--model codes").size(), 1u);
}

TEST_F(NewTokenVerbs, AdaptersBringRowsAndTokenizer) {
  shell(
      "$QUENCH train chat.json --device=cpu --lora.rank=8 --lora.trainable_token_indices=new --export.format=peft "
      "--lora.alpha=32 --optimizer.lr=3e-2 --training.steps=120");
  const std::string text = answer("--model base --adapter chat --chat-template chatml");
  EXPECT_THAT(shell("$QUENCH merge-lora --model base --adapter chat --output merged 2>&1"),
              ::testing::Not(HasSubstr("trained over other weights")));
  EXPECT_EQ(answer("--model merged --chat-template chatml"), text);
  EXPECT_THAT(shell("$QUENCH eval --device cpu --model base --adapter chat --data text.txt"), HasSubstr("perplexity"));
}

TEST_F(NewTokenVerbs, TokenizeHasTheTokensOfAConfig) {
  shell("$QUENCH tokenize --config chat.json --input chat.jsonl --chat-template chatml --output shards");
  shell(
      "$QUENCH tokenize --tokenizer base --add-token '<|im_start|>' --add-token '<|im_end|>' --input chat.jsonl "
      "--chat-template chatml --output same");
  EXPECT_EQ(read_file(folder_ / "shards/train-00000.bin"), read_file(folder_ / "same/train-00000.bin"));
  shell("$QUENCH train chat.json --device=cpu --data.train=shards --training.steps=1");
  shell("$QUENCH tokenize --tokenizer base --input text.txt --output old");
  EXPECT_THAT(shell("$QUENCH train chat.json --device=cpu --data.train=old --run.folder=old-run", 1),
              HasSubstr("tokenize again, with --add-token for each token of model.add_tokens"));
  EXPECT_THAT(shell("$QUENCH tokenize --tokenizer base --add-token '<|pad|>' --input text.txt --output no", 2),
              HasSubstr("--add-token: \"<|pad|>\" is special token 258 of the tokenizer already"));
  EXPECT_THAT(shell("$QUENCH tokenize --tokenizer base --chat-template chatml --input chat.jsonl --output no", 2),
              HasSubstr("the tokenizer has no special token <|im_start|>, which the chat template needs; add it to "
                        "model.add_tokens"));
  EXPECT_THAT(shell("$QUENCH tokenize --config chat.json --tokenizer base --input text.txt --output no", 2),
              HasSubstr("--config chat.json has a tokenizer of its own"));
}

}  // namespace
}  // namespace quench
