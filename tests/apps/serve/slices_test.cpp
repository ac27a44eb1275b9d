// Generation and the server over several processes, each with a slice of the weights.

#include <gmock/gmock.h>

#include <fstream>

#include "nn/decoder/causal_lm.h"
#include "tests/apps/serve/server.h"
#include "train/model_folder/model_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_program;
using testing::ServerProcess;
using testing::TempDir;
using testing::write_file;

// A model with random weights whose heads, width and vocabulary two and four ranks divide.
fs::path sliceable_model(const fs::path& folder, const std::string& changes = "{}") {
  const fs::path from = testing::chat_model(folder), model = folder / "sliceable";
  Json config = Json::parse_file(from / "config.json");
  config.set("num_attention_heads", 8);
  config.set("num_key_value_heads", 4);
  const Json more = Json::parse(changes);
  for (const auto& [key, value] : more.as_object()) config.set(key, value);
  nn::CausalLm lm(nn::parse_model_config(config, "config.json"), {.dtype = DType::f32});
  lm.initialize(5);
  save_model_folder(lm, {.folder = model}, {.dtype = DType::f32});
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) fs::copy(from / name, model / name);
  return model;
}

std::vector<std::string> launcher(int ranks) {
  return {"run", "--standalone", "--nproc-per-node", std::to_string(ranks)};
}

class Slices : public ::testing::Test {
 protected:
  Outcome run(int ranks, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, {"--device", "cpu", "--model", model_.string(), "--dtype", "f32"});
    if (ranks > 1) {
      const std::vector<std::string> before = launcher(ranks);
      arguments.insert(arguments.begin(), before.begin(), before.end());
    }
    return run_program(folder_.path(), arguments);
  }
  // Every number of ranks writes the same.
  void expect_same(const std::vector<std::string>& arguments, std::initializer_list<int> ranks = {2, 4}) {
    const Outcome one = run(1, arguments);
    ASSERT_EQ(one.status, 0) << one.errors;
    EXPECT_GT(one.output.size(), 40u);
    for (const int count : ranks) {
      const Outcome several = run(count, arguments);
      EXPECT_EQ(several.status, 0) << several.errors;
      EXPECT_EQ(several.output, one.output) << count << " ranks: " << several.errors;
    }
  }

  TempDir folder_;
  fs::path model_ = sliceable_model(folder_.path());
};

TEST_F(Slices, AnswersAreThoseOfTheWholeModel) {
  const std::vector<std::string> length = {"--max-new-tokens", "40", "--ignore-eos"};
  const auto generate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), "generate");
    more.insert(more.end(), length.begin(), length.end());
    expect_same(more);
  };
  generate({"--prompt", "The ferry"});
  generate({"--prompt", "The ferry", "--temperature", "0.9", "--seed", "4", "--repetition-penalty", "1.2"});
  write_file(folder_ / "prompts.txt", "The ferry\nA\nferry ferry ferry\nThe ferry leaves\nThe\n");
  generate({"--prompts", "prompts.txt", "--batch-size", "2", "--temperature", "1", "--top-k", "30"});
  generate({"--prompt", "The ferry", "--kv-cache", "fp8"});
  generate({"--prompt", "The ferry", "--chat", "--regex", "[a-z]{8}(, [0-9]{3}){9}"});
}

TEST_F(Slices, EveryAttentionIsSplit) {
  for (const char* changes :
       {R"({"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 12})",
        R"({"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "sliding_window": 12,
            "query_pre_attn_scalar": 8, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
            "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"})",
        R"({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": false})"}) {
    SCOPED_TRACE(changes);
    fs::remove_all(folder_ / "tiny");
    fs::remove_all(folder_ / "sliceable");
    model_ = sliceable_model(folder_.path(), changes);
    expect_same({"generate", "--prompt", "The ferry", "--max-new-tokens", "40", "--ignore-eos"}, {2});
  }
}

TEST_F(Slices, SpeedIsMeasured) {
  const Outcome outcome =
      run(2, {"bench", "--batch-sizes", "1,3", "--prompt-tokens", "16", "--new-tokens", "8", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const Json rows = Json::parse(outcome.output);
  ASSERT_EQ(rows.as_array().size(), 2u);
  EXPECT_GT(rows.as_array()[1].at("tokens_per_second").as_double(), 0);
}

TEST_F(Slices, TheServerAnswersForAllRanks) {
  const std::vector<std::string> options = {"--dtype", "f32", "--max-sequences", "2"};
  ServerProcess one(folder_ / "tiny", model_, options);
  ASSERT_NE(one.port(), 0);
  ServerProcess server(folder_.path(), model_, options, launcher(2));
  ASSERT_NE(server.port(), 0) << testing::read_file(folder_ / "stderr.txt");
  for (int seed = 0; seed < 3; ++seed) {
    const std::string body = fmt::format(
        R"({{"prompt": ["The ferry", "A", "The ferry leaves"], "max_tokens": 20, "logprobs": 2, "seed": {}}})", seed);
    const Json expected = one.json("completions", body), got = server.json("completions", body);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(got.at("choices").as_array()[i].at("text"), expected.at("choices").as_array()[i].at("text"));
  }
  EXPECT_GT(server.events("completions", R"({"prompt": "The ferry", "max_tokens": 5, "stream": true})").size(), 2u);
  // Requests that do not fit are errors to their clients alone.
  const httplib::Result echo =
      server.post("completions", R"({"prompt": "The ferry", "max_tokens": 2, "echo": true, "logprobs": 1})");
  ASSERT_TRUE(echo);
  EXPECT_EQ(echo->status, 400);
  EXPECT_THAT(echo->body, HasSubstr("log-probabilities of the prompt are not available where several processes"));
  EXPECT_EQ(server.post("completions", R"({"prompt": "The ferry", "max_tokens": 100000})")->status, 400);
  EXPECT_EQ(server.json("completions", R"({"prompt": "A", "max_tokens": 2})").at("usage").at("completion_tokens"),
            Json(2));
  const Outcome ended = server.stop();
  EXPECT_THAT(ended.errors, Not(HasSubstr("failed:"))) << ended.errors;
}

TEST_F(Slices, WhatCannotBeSplitIsNamed) {
  const auto errors = [&](int ranks, const std::vector<std::string>& arguments) {
    const Outcome outcome = run(ranks, arguments);
    EXPECT_NE(outcome.status, 0);
    return outcome.errors;
  };
  EXPECT_THAT(errors(3, {"generate", "--prompt", "A"}), HasSubstr("vocab_size 320 is not divisible by 3"));
  EXPECT_THAT(errors(2, {"generate", "--interactive"}), HasSubstr("--interactive is for one process"));
  const std::string empty = errors(2, {"generate", "--prompt", "A", "--max-new-tokens", "1000"});
  EXPECT_THAT(empty, HasSubstr("the model's context of 128 has room for"));
  EXPECT_THAT(empty, Not(HasSubstr("broadcast")));
  EXPECT_THAT(errors(2, {"serve", "--port", "0", "--adapter", "one=" + model_.string(), "--adapter", "two=x"}),
              Not(HasSubstr("broadcast")));
  const Outcome few = run_program(
      folder_.path(), {"quantize", "--model", model_.string(), "--scheme", "int8_weight_only", "--output", "few"});
  ASSERT_EQ(few.status, 0) << few.errors;
  model_ = folder_ / "few";
  EXPECT_THAT(errors(2, {"generate", "--prompt", "A"}), HasSubstr("quantized weights are not split among processes"));
}

TEST_F(Slices, ALostRankEndsTheOthers) {
  ServerProcess server(folder_.path(), model_, {"--dtype", "f32"}, launcher(2));
  ASSERT_NE(server.port(), 0) << testing::read_file(folder_ / "stderr.txt");
  int killed = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::error_code other;  // ended, or of another user
    if (fs::read_symlink(entry.path() / "cwd", other) != fs::canonical(folder_.path())) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    const std::string variables{std::istreambuf_iterator<char>(file), {}};
    if (variables.find(std::string("\0RANK=1\0", 8)) == std::string::npos) continue;
    ASSERT_EQ(::kill(std::stoi(entry.path().filename()), SIGKILL), 0);
    ++killed;
  }
  ASSERT_EQ(killed, 1);
  EXPECT_NE(server.wait().status, 0);
}

}  // namespace
}  // namespace quench
