// model.add_tokens by two processes: what one does; rows are the same for any sharding.

#include <gtest/gtest.h>

#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

using Options = std::vector<std::string>;

class NewTokensByTwo : public testing::ShardedTraining {
 protected:
  void SetUp() override {
    ShardedTraining::SetUp();
    base("base", "false");
  }
  // 259 tokens, and their tokenizer.
  void base(const std::string& name, const std::string& tied) {
    write_config(R"("model_type": "llama", "vocab_size": 259, "hidden_size": 64, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": )" +
                 tied);
    train(1, name + "-run",
          {"--training.steps=1", "--export.format=hf", "--export.folder=" + (folder_ / name).string()});
    write_config(R"("path": ")" + (folder_ / name).string() + R"(", "add_tokens": ["text", "line "])");
  }
  void expect_same(const Options& options) {
    SCOPED_TRACE(::testing::PrintToString(options));
    const std::string one = fmt::format("one{}", runs_), two = fmt::format("two{}", runs_);
    ++runs_;
    const auto with_export = [&](const std::string& name) {
      Options all{"--training.steps=3", "--unset=data.tokenizer",
                  "--export.folder=" + (folder_ / (name + "-export")).string()};
      all.insert(all.end(), options.begin(), options.end());
      return all;
    };
    train(1, one, with_export(one));
    train(2, two, with_export(two));
    expect_same_run(two, one);
    // Rows that no gradient reaches are those of the start, bit for bit.
    const testing::fs::path folder = folder_ / (two + "-export");
    EXPECT_TRUE(testing::fs::exists(folder / "tokenizer.json"));
    if (options.back() == "--optimizer.lr=1e-30") expect_same_export(folder, folder_ / (one + "-export"));
  }

 private:
  int runs_ = 0;
};

TEST_F(NewTokensByTwo, TrainTheSame) {
  expect_same({"--export.format=hf"});
  expect_same({"--export.format=hf", "--optimizer.lr=1e-30"});
  expect_same({"--export.format=hf", "--model.new_token_init=normal", "--optimizer.lr=1e-30"});
  expect_same({"--lora.rank=2", "--lora.trainable_token_indices=new", "--export.format=peft"});
  expect_same({"--lora.rank=2", "--lora.base=nf4", "--export.format=peft"});
  base("tied", "true");
  expect_same({"--lora.rank=2", "--lora.trainable_token_indices=new", "--export.format=hf"});
}

}  // namespace
}  // namespace quench
