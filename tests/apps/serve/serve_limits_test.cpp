// quench serve: keys, full queues, clients that hang or leave, its end, and options that do not fit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/serve/server.h"

namespace quench {
namespace {

using testing::chat_model;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::RawClient;
using testing::run_program;
using testing::ServerProcess;
using testing::TempDir;
using Clock = std::chrono::steady_clock;

constexpr int kContext = 200'000;  // more tokens than are made within a test

// An answer that takes longer than the test.
std::string endless(const std::string& keys = {}) {
  return R"({"prompt": "The ferry", "max_tokens": 190000, "ignore_eos": true, "stream": true)" + keys + "}";
}

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 1000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

class ServeLimits : public ::testing::Test {
 protected:
  // `more`: further options.
  std::unique_ptr<ServerProcess> start(std::vector<std::string> more) {
    more.insert(more.end(), {"--cache-tokens", "400000"});
    auto server = std::make_unique<ServerProcess>(folder_.path(), model_, std::move(more));
    EXPECT_NE(server->port(), 0) << testing::read_file(folder_ / "stderr.txt");
    return server;
  }
  Outcome run(std::vector<std::string> more) {
    more.insert(more.begin(), {"serve", "--model", model_.string(), "--device", "cpu"});
    return run_program(folder_.path(), more);
  }

  TempDir folder_;
  std::filesystem::path model_ = chat_model(folder_.path(), kContext);
};

TEST_F(ServeLimits, AnswersWithoutALengthEndWithASmallCache) {
  const ServerProcess server(folder_.path(), model_, {"--cache-tokens", "96"});
  const Json answer = server.json("chat/completions",
                                  R"({"messages": [{"role": "user", "content": "The ferry"}], "ignore_eos": true})");
  const std::int64_t tokens = answer.at("usage").at("total_tokens").as_int();
  EXPECT_GE(tokens, 64);
  EXPECT_LE(tokens, 128);  // whole pages
  EXPECT_EQ(answer.at("choices").as_array().front().at("finish_reason"), Json("length"));
}

// Prompts that are scored follow each other without a gap; an answer grows between them.
TEST_F(ServeLimits, ScoredPromptsDoNotHoldUpAnswers) {
  const auto server = start({});
  std::atomic<bool> done = false;
  std::vector<std::jthread> clients;
  for (int client = 0; client < 3; ++client)
    clients.emplace_back([&] {
      while (!done)
        (void)server->post("completions", R"({"prompt": "The ferry", "echo": true, "logprobs": 0, "max_tokens": 0})");
    });
  const httplib::Result answer =
      server->post("completions", R"({"prompt": "A lake", "max_tokens": 40, "ignore_eos": true})");
  done = true;
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
}

TEST_F(ServeLimits, NobodyGetsInWithoutTheKey) {
  testing::write_file(folder_ / "key", "secret-key\n");
  const auto server = start({"--api-key-file", (folder_ / "key").string(), "--host", "0.0.0.0", "--verbose"});
  const std::string body = R"({"prompt": "a", "max_tokens": 2})";
  for (const httplib::Headers& headers : {httplib::Headers{}, httplib::Headers{{"Authorization", "Bearer wrong"}},
                                          httplib::Headers{{"Authorization", "Bearer secret-ke"}}}) {
    const httplib::Result refused = server->post("completions", body, headers);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->status, 401);
    EXPECT_EQ(refused->get_header_value("WWW-Authenticate"), "Bearer");
    EXPECT_EQ(Json::parse(refused->body).at("error").at("code"), Json("invalid_api_key"));
    for (const char* path : {"/v1/models", "/metrics"}) EXPECT_EQ(server->client().Get(path, headers)->status, 401);
    for (const char* path : {"/", "/health"}) EXPECT_EQ(server->client().Get(path, headers)->status, 200);
  }
  EXPECT_EQ(server->post("completions", body, {{"Authorization", "Bearer secret-key"}})->status, 200);
  EXPECT_EQ(server->client().Get("/v1/models", {{"Authorization", "Bearer secret-key"}})->status, 200);
  const Outcome outcome = server->stop();
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.errors, HasSubstr("POST /v1/completions 401"));
  EXPECT_THAT(outcome.errors + outcome.output, ::testing::Not(HasSubstr("secret-key")));
}

TEST_F(ServeLimits, AFullQueueRefusesAndAClientThatLeavesMakesRoom) {
  const auto server = start({"--max-sequences", "1", "--max-waiting", "1"});
  RawClient running(server->port());
  ASSERT_TRUE(running.post("completions", endless()));
  EXPECT_THAT(running.read_until("data: "), HasSubstr("200 OK"));
  RawClient waiting(server->port());
  ASSERT_TRUE(waiting.post("completions", endless()));
  ASSERT_TRUE(eventually([&] { return server->metric("quench_requests_waiting") == 1; }));
  const std::string body = R"({"prompt": "a", "max_tokens": 2})";
  const httplib::Result refused = server->post("completions", body);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->get_header_value("Retry-After"), "1");
  running.close();
  EXPECT_THAT(waiting.read_until("data: "), HasSubstr("200 OK"));
  waiting.close();
  EXPECT_TRUE(eventually([&] { return server->post("completions", body)->status == 200; }));
  EXPECT_TRUE(eventually([&] { return server->metric("quench_requests_running") == 0; }));
  // Without a stream, too.
  RawClient silent(server->port());
  ASSERT_TRUE(silent.post("completions", R"({"prompt": "a", "max_tokens": 190000, "ignore_eos": true})"));
  ASSERT_TRUE(eventually([&] { return server->metric("quench_requests_running") == 1; }));
  silent.close();
  EXPECT_TRUE(eventually([&] { return server->metric("quench_requests_running") == 0; }));
}

TEST_F(ServeLimits, ClientsThatHangLoseTheirConnection) {
  const auto server = start({"--timeout", "0.5"});
  const Clock::time_point begin = Clock::now();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (const char* bytes : {"GET /hea", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n",
                            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            "Content-Length: 100\r\n\r\n{\"prompt"}) {
    clients.push_back(std::make_unique<RawClient>(server->port()));
    ASSERT_TRUE(clients.back()->send(bytes));
  }
  EXPECT_EQ(server->client().Get("/health")->status, 200);
  for (const auto& client : clients) (void)client->read_until();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
  // An unread stream.
  RawClient slow(server->port());
  ASSERT_TRUE(slow.post("completions", endless(R"(, "n": 8, "logprobs": 20)")));
  ASSERT_TRUE(eventually([&] { return server->metric("quench_requests_running") == 8; }));
  EXPECT_TRUE(eventually([&] { return server->metric("quench_requests_running") == 0; }));
  EXPECT_EQ(server->client().Get("/health")->status, 200);
}

TEST_F(ServeLimits, IdleConnectionsMakeRoomForNewOnes) {
  const auto server = start({"--max-sequences", "1", "--max-waiting", "0"});  // 17 connections
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 17; ++i) {
    idle.push_back(std::make_unique<RawClient>(server->port()));
    ASSERT_TRUE(idle.back()->connected());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // all are being served
  const httplib::Result answered = server->client().Get("/health");
  ASSERT_TRUE(answered);
  EXPECT_EQ(answered->status, 200);
}

TEST_F(ServeLimits, RequestsInFlightEndBeforeTheServerDoes) {
  const auto server = start({"--grace", "60"});
  RawClient client(server->port());
  ASSERT_TRUE(
      client.post("completions", R"({"prompt": "a", "max_tokens": 400, "ignore_eos": true, "stream": true, "n": 4})"));
  std::string all = client.read_until("data: ");
  std::thread reader([&] { all += client.read_until(); });
  const Outcome outcome = server->stop();
  reader.join();
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(all, HasSubstr("data: [DONE]"));
  EXPECT_FALSE(RawClient(server->port()).connected());
}

TEST_F(ServeLimits, AfterTheGraceTheyAreEndedWithAnError) {
  const auto server = start({"--grace", "0.3"});
  RawClient client(server->port());
  ASSERT_TRUE(client.post("completions", endless()));
  std::string all = client.read_until("data: ");
  std::thread reader([&] { all += client.read_until(); });
  const Clock::time_point begin = Clock::now();
  const Outcome outcome = server->stop(SIGINT);
  reader.join();
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(15));
  EXPECT_THAT(all, HasSubstr("\"code\":\"server_stopped\""));
}

TEST_F(ServeLimits, ToolsThatTheTemplateDoesNotShowAreRefused) {
  testing::write_file(folder_ / "plain.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto server = start({"--chat-template", (folder_ / "plain.jinja").string(), "--alias", "poet"});
  const std::string body = R"({"model": "poet", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2)";
  const httplib::Result refused =
      server->post("chat/completions", body + R"(, "tools": [{"type": "function", "function": {"name": "f"}}]})");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(Json::parse(refused->body).at("error").at("param"), Json("tools"));
  EXPECT_EQ(server->json("chat/completions", body + "}").at("model"), Json("poet"));
}

TEST_F(ServeLimits, APortInUseIsNamedBeforeTheModelIsRead) {
  const auto server = start({});
  ASSERT_NE(server->port(), 0);
  const Outcome second = run({"--port", std::to_string(server->port())});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.errors, HasSubstr(fmt::format("cannot listen on http://127.0.0.1:{}: ", server->port())));
}

TEST_F(ServeLimits, OptionsThatDoNotFitAreExplained) {
  const auto errors = [&](std::vector<std::string> more) {
    const Outcome outcome = run(std::move(more));
    EXPECT_EQ(outcome.status, 2);
    return outcome.errors;
  };
  EXPECT_THAT(errors({"--host", "0.0.0.0"}), HasSubstr("--host 0.0.0.0 is open to other machines: set a token"));
  EXPECT_THAT(errors({"--api-key", "a b"}), HasSubstr("the API key holds a space"));
  EXPECT_THAT(errors({"--max-body", "lots"}), HasSubstr("--max-body"));
  testing::write_file(folder_ / "empty", "\n");
  EXPECT_THAT(errors({"--api-key-file", (folder_ / "empty").string()}), HasSubstr("the file holds no key"));
}

}  // namespace
}  // namespace quench
