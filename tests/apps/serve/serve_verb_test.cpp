// quench serve over a socket: endpoints, streams, errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/system/utf8.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/apps/serve/server.h"

namespace quench {
namespace {

using testing::chat_model;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::ServerProcess;
using testing::TempDir;

const Json& only_choice(const Json& answer) {
  return answer.at("choices").as_array().front();
}

// One server for all of its tests.
class ServeVerb : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempDir>();
    model_ = chat_model(folder_->path());
    server_ = std::make_unique<ServerProcess>(folder_->path(), model_, std::vector<std::string>{"--max-body", "1MiB"});
    ASSERT_NE(server_->port(), 0) << testing::read_file(*folder_ / "stderr.txt");
  }
  static void TearDownTestSuite() {
    const Outcome outcome = server_->stop();
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    server_.reset();
    folder_.reset();
  }
  // "status param message"
  static std::string error_of(const httplib::Result& result) {
    if (!result) return "no answer";
    const Json error = Json::parse(result->body).at("error");
    return fmt::format("{} {} {}", result->status, error.at("param").is_null() ? "-" : error.at("param").as_string(),
                       error.at("message").as_string());
  }
  static std::string error(const std::string& path, const std::string& body) {
    return error_of(server_->post(path, body));
  }

  static inline std::unique_ptr<TempDir> folder_;
  static inline std::filesystem::path model_;
  static inline std::unique_ptr<ServerProcess> server_;
};

TEST_F(ServeVerb, EveryPathAnswers) {
  httplib::Client client = server_->client();
  client.set_keep_alive(true);
  EXPECT_EQ(Json::parse(client.Get("/health")->body).at("status"), Json("ok"));
  const Json models = Json::parse(client.Get("/v1/models")->body);
  EXPECT_EQ(models.at("data").as_array().front().at("id"), Json("tiny"));
  EXPECT_EQ(models.at("data").as_array().front().at("max_model_len"), Json(128));
  EXPECT_EQ(client.Get("/v1/models/tiny")->status, 200);
  EXPECT_EQ(client.Get("/v1/models/other")->status, 404);
  const httplib::Result page = client.Get("/");
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  EXPECT_THAT(page->body, HasSubstr("<title>Quench chat</title>"));
  EXPECT_THAT(page->body, ::testing::Not(HasSubstr("http://")));
  EXPECT_GT(server_->metric("quench_cache_tokens"), -1);
  EXPECT_THAT(error_of(client.Get("/v2")), HasSubstr("404 - unknown path GET /v2"));
  EXPECT_EQ(client.Delete("/v1/models/tiny")->status, 405);
}

TEST_F(ServeVerb, AChatIsThatOfGenerate) {
  const std::string body =
      R"({"model": "tiny", "messages": [{"role": "user", "content": "The ferry"}], "max_tokens": 30, "temperature": 0)";
  const Json whole = server_->json("chat/completions", body + "}");
  const std::string text = only_choice(whole).at("message").at("content").as_string();
  TempDir work;
  const Outcome generated =
      run_program(work.path(), {"generate", "--model", model_.string(), "--device", "cpu", "--chat", "--prompt",
                                "The ferry", "--max-new-tokens", "30", "--json"});
  ASSERT_EQ(generated.status, 0) << generated.errors;
  const Json expected = Json::parse(generated.output);
  EXPECT_EQ(text, expected.at("text").as_string());
  EXPECT_EQ(whole.at("usage").at("prompt_tokens"), expected.at("prompt_tokens"));
  EXPECT_EQ(whole.at("usage").at("completion_tokens"),
            Json(static_cast<std::int64_t>(expected.at("tokens").as_array().size())));

  const std::vector<std::string> events =
      server_->events("chat/completions", body + R"(, "stream": true, "stream_options": {"include_usage": true}})");
  ASSERT_GT(events.size(), 4u);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string streamed, reason;
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    const Json chunk = Json::parse(events[i]);
    EXPECT_TRUE(chunk.at("usage").is_null());
    const Json& choice = only_choice(chunk);
    if (const Json* content = choice.at("delta").find("content")) streamed += content->as_string();
    if (!choice.at("finish_reason").is_null()) reason = choice.at("finish_reason").as_string();
  }
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(reason, only_choice(whole).at("finish_reason").as_string());
  EXPECT_EQ(Json::parse(events[events.size() - 2]).at("usage").at("completion_tokens"),
            whole.at("usage").at("completion_tokens"));
}

TEST_F(ServeVerb, ACompletionIsThatOfGenerate) {
  const Json whole = server_->json(
      "completions",
      R"({"prompt": "The ferry", "max_tokens": 20, "temperature": 0, "ignore_eos": true, "skip_special_tokens": false})");
  TempDir work;
  const Outcome generated =
      run_program(work.path(), {"generate", "--model", model_.string(), "--device", "cpu", "--ignore-eos", "--prompt",
                                "The ferry", "--max-new-tokens", "20", "--json"});
  ASSERT_EQ(generated.status, 0) << generated.errors;
  EXPECT_EQ(only_choice(whole).at("text"), Json::parse(generated.output).at("text"));
  EXPECT_EQ(only_choice(whole).at("finish_reason"), Json("length"));
}

TEST_F(ServeVerb, SeedsRepeatAnswers) {
  const auto texts = [&](const std::string& keys) {
    std::vector<std::string> result;
    const Json answer =
        server_->json("completions", R"({"prompt": "The ferry", "max_tokens": 20, "ignore_eos": true)" + keys + "}");
    for (const Json& choice : answer.at("choices").as_array()) result.push_back(choice.at("text").as_string());
    return result;
  };
  EXPECT_EQ(texts(R"(, "seed": 5)"), texts(R"(, "seed": 5)"));
  EXPECT_NE(texts(R"(, "seed": 5)"), texts(R"(, "seed": 6)"));
  EXPECT_NE(texts(""), texts(""));
  const std::vector<std::string> three = texts(R"(, "seed": 5, "n": 3)");
  ASSERT_EQ(three.size(), 3u);
  EXPECT_NE(three[0], three[1]);
  EXPECT_EQ(three, texts(R"(, "seed": 5, "n": 3)"));
}

TEST_F(ServeVerb, PromptsInOneRequestAreAnsweredInOrder) {
  const std::string keys = R"(, "max_tokens": 6, "temperature": 0, "ignore_eos": true})";
  const Json both = server_->json("completions", R"({"prompt": ["The ferry", "A bridge"])" + keys);
  ASSERT_EQ(both.at("choices").as_array().size(), 2u);
  EXPECT_EQ(both.at("choices").as_array()[1].at("index"), Json(1));
  EXPECT_EQ(only_choice(both).at("text"),
            only_choice(server_->json("completions", R"({"prompt": "The ferry")" + keys)).at("text"));
  const Json ids = server_->json("completions", R"({"prompt": [[0, 40, 41], [0, 50]])" + keys);
  EXPECT_EQ(ids.at("usage").at("prompt_tokens"), Json(5));
}

TEST_F(ServeVerb, AStopTextEndsAnAnswer) {
  const std::string keys = R"({"prompt": "The ferry", "max_tokens": 40, "temperature": 0, "ignore_eos": true)";
  const std::string text = only_choice(server_->json("completions", keys + "}")).at("text").as_string();
  ASSERT_GT(text.size(), 20u);
  Json body = Json::parse(keys + "}");
  const std::string stop = text.substr(10, 3);
  ASSERT_EQ(find_invalid_utf8(stop), std::string::npos);
  body.set("stop", Json::Array{stop, "never met"});
  const Json cut = server_->json("completions", body.dump());
  EXPECT_EQ(only_choice(cut).at("text").as_string(), text.substr(0, text.find(stop)));
  EXPECT_EQ(only_choice(cut).at("finish_reason"), Json("stop"));
  EXPECT_LT(cut.at("usage").at("completion_tokens").as_int(), 40);
}

TEST_F(ServeVerb, LogprobsOfPromptAndAnswerAgree) {
  const Json answer = server_->json(
      "completions",
      R"({"prompt": "The ferry", "max_tokens": 4, "temperature": 0, "ignore_eos": true, "logprobs": 3, "echo": true})");
  const Json& logprobs = only_choice(answer).at("logprobs");
  const Json::Array& values = logprobs.at("token_logprobs").as_array();
  const std::size_t prompt = static_cast<std::size_t>(answer.at("usage").at("prompt_tokens").as_int());
  ASSERT_EQ(values.size(), prompt + 4);
  EXPECT_TRUE(values.front().is_null());
  EXPECT_TRUE(only_choice(answer).at("text").as_string().starts_with("The ferry"));
  for (std::size_t i = 1; i < values.size(); ++i) EXPECT_LE(values[i].as_double(), 0) << i;
  // The text once more as a prompt: what was generated greedily is the likeliest there, with the same probability.
  Json tokens = Json::array();
  TempDir work;
  const Outcome generated =
      run_program(work.path(), {"generate", "--model", model_.string(), "--device", "cpu", "--ignore-eos", "--prompt",
                                "The ferry", "--max-new-tokens", "4", "--json"});
  const Json ids = Json::parse(generated.output);
  Json whole = Json::parse(R"({"max_tokens": 0, "logprobs": 1, "echo": true})");
  const auto tokenizer = load_tokenizer(model_);
  for (const std::int32_t id : tokenizer->encode("The ferry")) tokens.push_back(id);
  for (const Json& id : ids.at("tokens").as_array()) tokens.push_back(id);
  whole.set("prompt", tokens);
  const Json scored = server_->json("completions", whole.dump());
  EXPECT_EQ(only_choice(scored).at("finish_reason"), Json("length"));
  const Json& again = only_choice(scored).at("logprobs");
  ASSERT_EQ(again.at("token_logprobs").as_array().size(), values.size());
  for (std::size_t i = prompt; i < values.size(); ++i) {
    const double value = again.at("token_logprobs").as_array()[i].as_double();
    EXPECT_NEAR(value, values[i].as_double(), 1e-4) << i;
    for (const auto& [name, top] : again.at("top_logprobs").as_array()[i].as_object())
      EXPECT_LE(top.as_double(), value);
  }
}

TEST_F(ServeVerb, ToolsReachTheTemplate) {
  const std::string messages = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1)";
  const Json with =
      server_->json("chat/completions", messages + R"(, "tools": [{"type": "function", "function": {"name": "f"}}]})");
  const Json without = server_->json("chat/completions", messages + "}");
  EXPECT_GT(with.at("usage").at("prompt_tokens").as_int(), without.at("usage").at("prompt_tokens").as_int() + 5);
}

TEST_F(ServeVerb, TheBeginningOfAPromptIsFoundInTheCache) {
  Json body = Json::parse(R"({"max_tokens": 2, "temperature": 0})");
  Json ids = Json::array();
  for (int i = 0; i < 60; ++i) ids.push_back(100 + i);
  body.set("prompt", std::move(ids));
  const auto cached = [&] {
    return server_->json("completions", body.dump())
        .at("usage")
        .at("prompt_tokens_details")
        .at("cached_tokens")
        .as_int();
  };
  EXPECT_EQ(cached(), 0);
  EXPECT_GE(cached(), 32);
}

TEST_F(ServeVerb, BadRequestsAreExplained) {
  const std::string many(3000, 'x');
  EXPECT_THAT(error("completions", R"({"prompt": "a", "max_tokens": 500})"), HasSubstr("400 max_tokens "));
  EXPECT_THAT(error("completions", R"({"prompt": ")" + many + R"("})"), HasSubstr("400 prompt the prompt has "));
  EXPECT_THAT(error("chat/completions", R"({"messages": [{"role": "user", "content": ")" + many + R"("}]})"),
              HasSubstr("400 messages the prompt has "));
  EXPECT_THAT(error("completions", R"({"prompt": "a", "model": "gpt-4"})"), HasSubstr("404 model unknown model"));
  EXPECT_THAT(error("completions", R"({"prompt": [999999]})"), HasSubstr("400 prompt token 999999"));
  EXPECT_THAT(error("completions", R"({"prompt": "a", "n": 128, "prompt": "b"})"), HasSubstr("400 - the body:1:"));
  EXPECT_THAT(error("completions", R"({"prompt": ["a", "b"], "n": 128})"), HasSubstr("400 n 2 prompts times n = 128"));
  EXPECT_THAT(error("completions", R"({"prompt": "a", "logit_bias": {"1": 1}})"), HasSubstr("400 logit_bias "));
  EXPECT_THAT(error("completions", "{\"prompt\": \"\xff\"}"), HasSubstr("400 - the body:1:"));
  EXPECT_THAT(error("completions", std::string(200000, '[')), HasSubstr("400 - the body:1:"));
  EXPECT_THAT(error("completions", ""), HasSubstr("400 - the body:1:"));
  EXPECT_THAT(error("nothing", "{}"), HasSubstr("404 - unknown path POST /v1/nothing"));
  EXPECT_THAT(error_of(server_->client().Post("/v1/completions", "{}", "text/plain")), HasSubstr("415 - "));
  EXPECT_THAT(
      error_of(server_->client().Post("/v1/completions", {{"Content-Encoding", "gzip"}}, "{}", "application/json")),
      HasSubstr("415 - "));
  // Others continue.
  EXPECT_EQ(server_->post("completions", R"({"prompt": "a", "max_tokens": 2})")->status, 200);
}

TEST_F(ServeVerb, OversizedBodiesAreRefused) {
  const std::string body = R"({"prompt": ")" + std::string(2 << 20, 'x') + R"("})";
  EXPECT_THAT(error("completions", body), HasSubstr("413 - "));
  testing::RawClient chunked(server_->port());
  ASSERT_TRUE(
      chunked.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n"));
  for (int i = 0; i < 64 && chunked.send("10000\r\n" + std::string(65536, 'x') + "\r\n"); ++i) continue;
  EXPECT_THAT(chunked.read_until(), HasSubstr("HTTP/1.1 413 "));
  EXPECT_EQ(server_->post("completions", R"({"prompt": "a", "max_tokens": 2})")->status, 200);
}

TEST_F(ServeVerb, HttpThatIsNoneEndsItsConnectionAlone) {
  for (const std::string& bytes :
       {std::string("\x16\x03\x01 TLS\r\n\r\n"), std::string("GET / HTTP/1.1\r\n") + std::string(200000, 'h'),
        std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    "Content-Length: -5\r\n\r\n{}"),
        std::string("GET /") + std::string(9000, 'p') + " HTTP/1.1\r\n\r\n"}) {
    testing::RawClient client(server_->port());
    (void)client.send(bytes);
    const std::string answer = client.read_until();
    EXPECT_EQ(answer.find("200 OK"), std::string::npos) << answer;
  }
  EXPECT_EQ(server_->client().Get("/health")->status, 200);
}

TEST_F(ServeVerb, WebSitesCannotReachItByANameOfTheirs) {
  EXPECT_THAT(error_of(server_->client().Get("/v1/models", {{"Host", "evil.example"}})), HasSubstr("403 - "));
}

TEST_F(ServeVerb, ThirtyClientsAtOnce) {
  const std::string body =
      R"({"prompt": "The ferry", "max_tokens": 20, "temperature": 0, "ignore_eos": true, "stream": )";
  const std::string text = only_choice(server_->json("completions", body + "false}")).at("text").as_string();
  std::vector<std::string> texts(30);
  std::vector<std::thread> clients;
  for (std::size_t i = 0; i < texts.size(); ++i)
    clients.emplace_back([&, i] {
      if (i % 2 == 0) {
        texts[i] = only_choice(server_->json("completions", body + "false}")).at("text").as_string();
        return;
      }
      for (const std::string& event : server_->events("completions", body + "true}"))
        if (event != "[DONE]") texts[i] += only_choice(Json::parse(event)).at("text").as_string();
    });
  for (std::thread& client : clients) client.join();
  for (const std::string& other : texts) EXPECT_EQ(other, text);
}

}  // namespace
}  // namespace quench
