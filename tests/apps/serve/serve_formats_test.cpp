// quench serve and generate: answers in a format.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/grammar/grammar.h"
#include "tests/apps/serve/server.h"

namespace quench {
namespace {

using testing::chat_model;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::ServerProcess;
using testing::TempDir;

constexpr const char* kSchema = R"({"type": "object", "properties": {"kind": {"enum": ["river", "lake"]},
    "length": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["kind", "length"]})";

class ServeFormats : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempDir>();
    model_ = chat_model(folder_->path(), 512);
    server_ =
        std::make_unique<ServerProcess>(folder_->path(), model_, std::vector<std::string>{"--max-sequences", "8"});
    ASSERT_NE(server_->port(), 0) << testing::read_file(*folder_ / "stderr.txt");
  }
  static void TearDownTestSuite() {
    const Outcome outcome = server_->stop();
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    server_.reset();
    folder_.reset();
  }
  void SetUp() override {
    if (open_grammar_library == nullptr) GTEST_SKIP() << "built without XGrammar";
  }
  static std::string error(const std::string& path, const std::string& body) {
    const httplib::Result result = server_->post(path, body);
    if (!result) return "no answer";
    const Json error = Json::parse(result->body).at("error");
    return fmt::format("{} {} {}", result->status, error.at("param").is_null() ? "-" : error.at("param").as_string(),
                       error.at("message").as_string());
  }
  static std::string with_schema(std::string_view schema, std::string_view more = "") {
    return fmt::format(R"({{"prompt": "The ferry", "max_tokens": 300{}, "response_format": {{"type": "json_schema",
        "json_schema": {{"name": "place", "schema": {}}}}}}})",
                       more, schema);
  }
  static void expect_place(const std::string& text) {
    const Json place = Json::parse(text);
    EXPECT_TRUE(place.at("kind") == Json("river") || place.at("kind") == Json("lake")) << text;
    EXPECT_TRUE(place.at("length").as_int() >= 1 && place.at("length").as_int() <= 99) << text;
  }

  static inline std::unique_ptr<TempDir> folder_;
  static inline std::filesystem::path model_;
  static inline std::unique_ptr<ServerProcess> server_;
};

TEST_F(ServeFormats, ACompletionKeepsToItsSchema) {
  const Json answer = server_->json("completions", with_schema(kSchema, R"(, "n": 4, "seed": 5, "temperature": 1.5)"));
  for (const Json& choice : answer.at("choices").as_array()) {
    EXPECT_EQ(choice.at("finish_reason"), Json("stop"));
    expect_place(choice.at("text").as_string());
  }
  EXPECT_EQ(
      server_->json("completions", with_schema(kSchema, R"(, "n": 4, "seed": 5, "temperature": 1.5)")).at("choices"),
      answer.at("choices"));
}

TEST_F(ServeFormats, AChatIsStreamedInItsFormat) {
  const std::string body = fmt::format(
      R"({{"messages": [{{"role": "user", "content": "Hi"}}], "temperature": 0, "stream": true, "max_tokens": 300,
          "response_format": {{"type": "json_schema", "json_schema": {{"schema": {}}}}}}})",
      kSchema);
  std::string text;
  for (const std::string& event : server_->events("chat/completions", body)) {
    if (event == "[DONE]") continue;
    const Json delta = Json::parse(event).at("choices").as_array().front().at("delta");
    if (const Json* content = delta.find("content"); content != nullptr && content->is_string())
      text += content->as_string();
  }
  expect_place(text);
}

TEST_F(ServeFormats, JsonObjectsAndExpressions) {
  const Json object = server_->json("completions", R"({"prompt": "A", "max_tokens": 400, "temperature": 1, "seed": 1,
      "response_format": {"type": "json_object"}})");
  const Json& choice = object.at("choices").as_array().front();
  EXPECT_EQ(choice.at("text").as_string().front(), '{');
  if (choice.at("finish_reason") == Json("stop")) {
    EXPECT_TRUE(Json::parse(choice.at("text").as_string()).is_object());
  }
  const Json matched = server_->json("completions", R"({"prompt": "A", "max_tokens": 40, "ignore_eos": true,
      "structured_outputs": {"regex": "(yes|no)!"}})");
  EXPECT_THAT(matched.at("choices").as_array().front().at("text").as_string(), ::testing::AnyOf("yes!", "no!"));
  EXPECT_EQ(matched.at("choices").as_array().front().at("finish_reason"), Json("stop"));
}

TEST_F(ServeFormats, AStopTextEndsOneEarly) {
  const Json answer = server_->json("completions", with_schema(R"({"const": "one two three"})", R"(, "stop": "two")"));
  EXPECT_EQ(answer.at("choices").as_array().front().at("text"), Json("\"one "));
}

TEST_F(ServeFormats, BadFormatsAreExplainedAndTheRestGoesOn) {
  EXPECT_THAT(error("completions", with_schema(R"({"type": "array", "uniqueItems": true, "items": {}})")),
              HasSubstr("400 response_format the schema at #: \"uniqueItems\""));
  EXPECT_THAT(error("completions", with_schema(R"({"type": "thing"})")), HasSubstr("400 response_format "));
  EXPECT_THAT(error("completions", with_schema(R"({"type": "integer", "minimum": 3, "maximum": 1})")),
              HasSubstr("400 response_format the schema"));
  EXPECT_THAT(error("completions", R"({"prompt": "A", "structured_outputs": {"regex": "("}})"),
              HasSubstr("400 structured_outputs "));
  Json properties = Json::object();
  for (int i = 0; i < 1000; ++i) properties.set("p" + std::to_string(i), Json(Json::Object{{"type", "null"}}));
  const Json costly(Json::Object{
      {"type", "object"}, {"properties", std::move(properties)}, {"minProperties", 500}, {"maxProperties", 510}});
  std::string refusal;
  std::thread slow([&] { refusal = error("completions", with_schema(costly.dump())); });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(server_->post("completions", R"({"prompt": "a", "max_tokens": 2})")->status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  slow.join();
  EXPECT_THAT(refusal, HasSubstr("400 response_format the schema takes more than"));
  expect_place(
      server_->json("completions", with_schema(kSchema)).at("choices").as_array().front().at("text").as_string());
}

TEST_F(ServeFormats, AnswersInFormatsAndWithoutAtOnce) {
  const std::string plain = R"({"prompt": "The ferry", "max_tokens": 60, "temperature": 0})";
  const Json expected = server_->json("completions", plain).at("choices").as_array().front().at("text");
  std::vector<std::thread> clients;
  std::vector<std::string> texts(12);
  for (std::size_t i = 0; i < texts.size(); ++i)
    clients.emplace_back([&, i] {
      const std::string body = i % 2 == 0 ? plain : with_schema(kSchema, fmt::format(R"(, "seed": {})", i));
      texts[i] = server_->json("completions", body).at("choices").as_array().front().at("text").as_string();
    });
  for (std::thread& client : clients) client.join();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i % 2 == 0)
      EXPECT_EQ(texts[i], expected.as_string());
    else
      expect_place(texts[i]);
  }
}

TEST_F(ServeFormats, GenerateKeepsToAFile) {
  testing::write_file(*folder_ / "schema.json", kSchema);
  const auto generate = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"generate",      "--device",         "cpu", "--model",
                                       model_.string(), "--max-new-tokens", "300"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    TempDir own;
    testing::write_file(own / "schema.json", kSchema);
    testing::write_file(own / "bad.json", R"({"not": {}})");
    testing::write_file(own / "prompts.txt", "The ferry\nA lake\n");
    return run_program(own.path(), arguments);
  };
  const Outcome one = generate({"--prompt", "The ferry", "--json", "--json-schema", "schema.json"});
  ASSERT_EQ(one.status, 0) << one.errors;
  expect_place(Json::parse(one.output).at("text").as_string());
  EXPECT_EQ(Json::parse(one.output).at("ended_by"), Json("an end-of-sequence token"));
  // The server's, too.
  EXPECT_EQ(server_->json("completions", with_schema(kSchema, R"(, "temperature": 0)"))
                .at("choices")
                .as_array()
                .front()
                .at("text"),
            Json::parse(one.output).at("text"));
  const Outcome many = generate({"--prompts", "prompts.txt", "--json-schema", "schema.json", "--ignore-eos"});
  ASSERT_EQ(many.status, 0) << many.errors;
  std::istringstream lines(many.output);
  for (std::string line; std::getline(lines, line);) {
    expect_place(Json::parse(line).at("text").as_string());
    EXPECT_EQ(Json::parse(line).at("ended_by"), Json("the end of its format"));
  }
  const Outcome matched = generate({"--prompt", "A", "--json", "--regex", "[xyz]{2}"});
  EXPECT_EQ(Json::parse(matched.output).at("text").as_string().size(), 2U);
  EXPECT_EQ(Json::parse(generate({"--prompt", "A", "--json", "--regex", ""}).output).at("text"), Json(""));
  EXPECT_NE(generate({"--prompt", "A", "--json-schema", ""}).status, 0);
  EXPECT_THAT(generate({"--prompt", "A", "--json-schema", "bad.json"}).errors,
              HasSubstr("bad.json: the schema at #: \"not\""));
  EXPECT_THAT(generate({"--prompt", "A", "--json-schema", "none.json"}).errors, HasSubstr("none.json"));
  EXPECT_NE(generate({"--prompt", "A", "--json-schema", "schema.json", "--regex", "a"}).status, 0);
}

}  // namespace
}  // namespace quench
