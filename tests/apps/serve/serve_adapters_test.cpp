// quench serve with several adapters, which requests choose by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/safetensors/safetensors.h"
#include "tests/apps/serve/server.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::chat_model;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::ServerProcess;

// Adapter of q_proj, v_proj and down_proj of the tiny model.
fs::path write_adapter(const fs::path& folder, std::int64_t rank, std::uint32_t seed, const std::string& more = "") {
  fs::create_directories(folder);
  testing::write_file(folder / "adapter_config.json",
                      fmt::format(R"({{"peft_type": "LORA", "r": {}, "lora_alpha": {}, "target_modules": )"
                                  R"(["q_proj", "v_proj", "down_proj"]{}}})",
                                  rank, 2 * rank, more));
  testing::Generator random(seed);
  std::vector<SafetensorsItem> items;
  std::vector<Tensor> values;
  for (int layer = 0; layer < 2; ++layer)
    for (const auto& [name, out, in] :
         {std::tuple{"self_attn.q_proj", 16, 16}, {"self_attn.v_proj", 8, 16}, {"mlp.down_proj", 16, 32}})
      for (const bool is_a : {true, false}) {
        const Tensor value = Tensor::empty(is_a ? Shape{rank, in} : Shape{out, rank}, DType::f32);
        random.fill_normal(value);
        items.push_back(
            {fmt::format("base_model.model.model.layers.{}.{}.lora_{}.weight", layer, name, is_a ? 'A' : 'B'),
             DType::f32,
             value.shape(),
             {static_cast<const std::byte*>(value.raw_data()), value.nbytes()}});
        values.push_back(value);
      }
  write_safetensors(folder / "adapter_model.safetensors", items);
  return folder;
}

std::string text_of(const Json& answer) {
  return answer.at("choices").as_array().front().at("text").as_string();
}

class ServeAdapters : public ::testing::Test {
 protected:
  std::string generated(const std::string& adapter) {
    std::vector<std::string> arguments{"generate", "--model",   model_.string(),    "--device", "cpu",   "--ignore-eos",
                                       "--prompt", "The ferry", "--max-new-tokens", "20",       "--json"};
    if (!adapter.empty()) arguments.insert(arguments.end(), {"--adapter", adapter});
    const Outcome outcome = run_program(folder_.path(), arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return Json::parse(outcome.output).at("text").as_string();
  }
  std::string errors(std::vector<std::string> adapters) {
    std::vector<std::string> arguments{"serve", "--model", model_.string(), "--device", "cpu", "--port", "0"};
    arguments.emplace_back("--adapter");
    arguments.insert(arguments.end(), adapters.begin(), adapters.end());
    const Outcome outcome = run_program(folder_.path(), arguments);
    EXPECT_NE(outcome.status, 0);
    return outcome.errors;
  }

  testing::TempDir folder_;
  fs::path model_ = chat_model(folder_.path());
  std::string poet_ = write_adapter(folder_ / "poet", 4, 1).string(),
              clerk_ = write_adapter(folder_ / "clerk", 2, 2).string();
};

TEST_F(ServeAdapters, ARequestChoosesOneByName) {
  const ServerProcess server(folder_.path(), model_, {"--adapter", "poet=" + poet_, "--adapter", "clerk=" + clerk_});
  ASSERT_NE(server.port(), 0) << testing::read_file(folder_ / "stderr.txt");
  EXPECT_THAT(testing::read_file(folder_ / "stdout.txt"), HasSubstr("serving tiny with adapters poet, clerk at "));
  const auto body = [](const std::string& model, const std::string& more = "") {
    return fmt::format(R"({{"model": "{}", "prompt": "The ferry", "max_tokens": 20, "temperature": 0, )"
                       R"("ignore_eos": true, "skip_special_tokens": false{}}})",
                       model, more);
  };
  const std::vector<std::pair<std::string, std::string>> expected{
      {"tiny", generated("")}, {"poet", generated(poet_)}, {"clerk", generated(clerk_)}};
  EXPECT_NE(expected[0].second, expected[1].second);
  EXPECT_NE(expected[1].second, expected[2].second);
  // Side by side, and again with what is in the cache.
  for (int round = 0; round < 2; ++round) {
    std::vector<Json> answers(12);
    std::vector<std::thread> clients;
    for (std::size_t i = 0; i < answers.size(); ++i)
      clients.emplace_back([&, i] { answers[i] = server.json("completions", body(expected[i % 3].first)); });
    for (std::thread& client : clients) client.join();
    for (std::size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(text_of(answers[i]), expected[i % 3].second) << expected[i % 3].first;
      EXPECT_EQ(answers[i].at("model").as_string(), expected[i % 3].first);
    }
  }
  const std::vector<std::string> events = server.events("completions", body("poet", R"(, "stream": true)"));
  std::string streamed;
  for (const std::string& event : events)
    if (event != "[DONE]") streamed += text_of(Json::parse(event));
  EXPECT_EQ(streamed, expected[1].second);
  EXPECT_EQ(Json::parse(events.front()).at("model"), Json("poet"));

  // Log-probabilities of the prompt are the adapter's too.
  const auto prompt_logprob = [&](const std::string& model) {
    const Json answer = server.json("completions", body(model, R"(, "echo": true, "logprobs": 0)"));
    return answer.at("choices").as_array().front().at("logprobs").at("token_logprobs").as_array()[1].as_double();
  };
  EXPECT_NE(prompt_logprob("poet"), prompt_logprob("tiny"));
  EXPECT_NE(prompt_logprob("poet"), prompt_logprob("clerk"));

  const Json::Array models = Json::parse(server.client().Get("/v1/models")->body).at("data").as_array();
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0].at("id"), Json("tiny"));
  EXPECT_EQ(models[0].find("parent"), nullptr);
  EXPECT_EQ(models[2].at("id"), Json("clerk"));
  EXPECT_EQ(models[2].at("parent"), Json("tiny"));
  EXPECT_EQ(server.client().Get("/v1/models/poet")->status, 200);
  const httplib::Result unknown = server.post("completions", body("painter"));
  EXPECT_EQ(unknown->status, 404);
  EXPECT_THAT(unknown->body, HasSubstr("served: tiny, poet, clerk"));
}

TEST_F(ServeAdapters, OneWithoutANameIsForAllRequests) {
  const ServerProcess server(folder_.path(), model_, {"--adapter", poet_});
  ASSERT_NE(server.port(), 0) << testing::read_file(folder_ / "stderr.txt");
  EXPECT_EQ(text_of(server.json("completions", R"({"prompt": "The ferry", "max_tokens": 20, "temperature": 0,
                                "ignore_eos": true, "skip_special_tokens": false})")),
            generated(poet_));
}

TEST_F(ServeAdapters, OptionsThatDoNotFitAreExplained) {
  EXPECT_THAT(errors({poet_, clerk_}), HasSubstr("as --adapter NAME=" + poet_));
  EXPECT_THAT(errors({"clerk=" + clerk_, poet_}), HasSubstr("as --adapter NAME=" + poet_));
  EXPECT_THAT(errors({"a=" + clerk_, "a=" + poet_}), HasSubstr("names are distinct"));
  EXPECT_THAT(errors({"tiny=" + poet_}), HasSubstr("names are distinct"));
  EXPECT_THAT(errors({"=" + poet_}), HasSubstr("the name is empty"));
  EXPECT_THAT(errors({"poet=missing"}), HasSubstr("missing"));
  const std::string dora = write_adapter(folder_ / "dora", 4, 3, R"(, "use_dora": true)").string();
  EXPECT_THAT(errors({"poet=" + poet_, "dora=" + dora}),
              HasSubstr("adapter dora: " + dora + "/adapter_config.json: use_dora: "));
}

}  // namespace
}  // namespace quench
