// Requests of OpenAI's API: every key acts, is neutral, or is refused by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/serve/api/api_error.h"
#include "apps/serve/api/api_key.h"
#include "apps/serve/api/request.h"

namespace quench::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ApiRequest chat(const std::string& keys) {
  return parse_chat_request(parse_body(R"({"messages": [{"role": "user", "content": "Hi"}])" + keys + "}"), {});
}
ApiRequest completion(const std::string& keys) {
  return parse_completion_request(parse_body(R"({"prompt": "Hi")" + keys + "}"), {});
}

// Status, name and message of the error.
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const ApiError& error) {
    const Json body = Json::parse(error.body()).at("error");
    return fmt::format("{} {} {}", error.status(), body.at("param").is_null() ? "-" : body.at("param").as_string(),
                       body.at("message").as_string());
  }
  return "no error";
}
std::string chat_error(const std::string& keys) {
  return error_of([&] { (void)chat(keys); });
}
std::string completion_error(const std::string& keys) {
  return error_of([&] { (void)completion(keys); });
}

TEST(ServeRequest, KeysOfAChatAreRead) {
  const ApiRequest request = chat(
      R"(, "model": "m", "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1,
      "repetition_penalty": 1.2, "seed": -1, "n": 3, "stop": ["a", "b"], "stream": true,
      "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 4, "user": "u", "metadata": {"a": 1},
      "frequency_penalty": 0, "logit_bias": {}, "response_format": {"type": "text"}, "tool_choice": null)");
  EXPECT_TRUE(request.chat);
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.2);
  EXPECT_EQ(request.seed, ~std::uint64_t{0});
  EXPECT_EQ(request.choices, 3);
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  EXPECT_TRUE(request.stream && request.include_usage && request.logprobs);
  EXPECT_EQ(request.top_logprobs, 4);
  ASSERT_EQ(request.conversation.messages.size(), 1u);
}

TEST(ServeRequest, SamplingThatIsNotNamedIsTheServers) {
  SamplingOptions defaults;
  defaults.temperature = 0.7;
  defaults.top_k = 20;
  const Json body = parse_body(R"({"prompt": "Hi", "top_k": 5})");
  const ApiRequest request = parse_completion_request(body, defaults);
  EXPECT_EQ(request.sampling.temperature, 0.7);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.max_tokens, 16);
}

TEST(ServeRequest, PromptsAreTextsOrTokenIds) {
  const auto prompts = [](const std::string& prompt) {
    return parse_completion_request(parse_body("{\"prompt\": " + prompt + "}"), {}).prompts;
  };
  EXPECT_EQ(prompts(R"("a")").front().text, "a");
  EXPECT_EQ(prompts(R"(["a", "b"])")[1].text, "b");
  EXPECT_THAT(prompts("[1, 2]").front().tokens, ElementsAre(1, 2));
  EXPECT_THAT(prompts("[[1], [2, 3]]")[1].tokens, ElementsAre(2, 3));
  for (const char* bad : {"[]", "{}", "[1, \"a\"]", "[-1]", "[4294967296]", "[[1, {}]]", "[\"a\", {}]", "1"})
    EXPECT_THAT(error_of([&] { (void)prompts(bad); }), HasSubstr("400 prompt ")) << bad;
}

TEST(ServeRequest, WhatCannotBeDoneIsRefusedByName) {
  EXPECT_THAT(chat_error(R"(, "frequency_penalty": 0.5)"), HasSubstr("400 frequency_penalty "));
  EXPECT_THAT(chat_error(R"(, "presence_penalty": -1)"), HasSubstr("400 presence_penalty "));
  EXPECT_THAT(chat_error(R"(, "logit_bias": {"5": 1})"), HasSubstr("400 logit_bias "));
  EXPECT_THAT(chat_error(R"(, "tool_choice": "required", "tools": [{"function": {"name": "f"}}])"),
              HasSubstr("400 tool_choice "));
  EXPECT_THAT(chat_error(R"(, "mirostat": 2)"), HasSubstr("400 mirostat unknown key"));
  EXPECT_THAT(chat_error(R"(, "echo": true)"), HasSubstr("400 echo unknown key"));
  EXPECT_THAT(completion_error(R"(, "messages": [])"), HasSubstr("400 messages unknown key"));
  EXPECT_THAT(completion_error(R"(, "best_of": 4)"), HasSubstr("400 best_of "));
  EXPECT_EQ(completion_error(R"(, "best_of": 2, "n": 2, "suffix": "")"), "no error");
}

TEST(ServeRequest, FormatsOfTheAnswerAreRead) {
  EXPECT_FALSE(chat(R"(, "response_format": {"type": "text"})").format);
  EXPECT_EQ(chat(R"(, "response_format": {"type": "json_object"})").format->kind, GrammarKind::json_object);
  const ApiRequest schema = chat(R"(, "response_format": {"type": "json_schema", "json_schema": {"name": "n",
      "strict": true, "schema": {"type": "integer"}}})");
  EXPECT_EQ(schema.format->kind, GrammarKind::json_schema);
  EXPECT_EQ(Json::parse(schema.format->text), Json::parse(R"({"type": "integer"})"));
  EXPECT_EQ(completion(R"(, "structured_outputs": {"regex": "a+", "json": null})").format->kind, GrammarKind::regex);
  EXPECT_EQ(completion(R"(, "structured_outputs": {"json": {}})").format->kind, GrammarKind::json_schema);
  for (const char* bad :
       {R"("json_object")", R"({})", R"({"type": "xml"})", R"({"type": "json_schema"})",
        R"({"type": "json_object", "a": 1})", R"({"type": "json_schema", "json_schema": {"name": "n"}})",
        R"({"type": "json_schema", "json_schema": {"schema": "text"}})",
        R"({"type": "json_schema", "json_schema": {"schema": {}, "more": 1}})"})
    EXPECT_THAT(chat_error(fmt::format(R"(, "response_format": {})", bad)), HasSubstr("400 response_format ")) << bad;
  EXPECT_THAT(chat_error(R"(, "structured_outputs": {"grammar": "root ::= x"})"), HasSubstr("400 structured_outputs "));
  EXPECT_THAT(chat_error(R"(, "structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"})"),
              HasSubstr("give one of them"));
  EXPECT_THAT(chat_error(R"(, "response_format": {"type": "json_object"}, "tools": [{"function": {"name": "f"}}])"),
              HasSubstr("400 response_format "));
}

TEST(ServeRequest, ValuesOutOfRangeNameTheirKey) {
  for (const char* bad : {R"(, "n": 0)", R"(, "n": 1000)", R"(, "n": 1.5)", R"(, "n": "2")"})
    EXPECT_THAT(chat_error(bad), HasSubstr("400 n ")) << bad;
  EXPECT_THAT(chat_error(R"(, "max_tokens": -1)"), HasSubstr("400 max_tokens "));
  EXPECT_THAT(chat_error(R"(, "max_tokens": 18446744073709551615)"), HasSubstr("400 max_tokens "));
  EXPECT_THAT(chat_error(R"(, "max_tokens": 1, "max_completion_tokens": 2)"), HasSubstr("differ"));
  EXPECT_THAT(chat_error(R"(, "temperature": -1)"), HasSubstr("400 temperature "));
  EXPECT_THAT(chat_error(R"(, "temperature": "hot")"), HasSubstr("400 temperature "));
  EXPECT_THAT(chat_error(R"(, "top_p": 1.5)"), HasSubstr("400 top_p "));
  EXPECT_THAT(chat_error(R"(, "stop": "")"), HasSubstr("400 stop "));
  EXPECT_THAT(chat_error(R"(, "stop": [1])"), HasSubstr("400 stop "));
  EXPECT_THAT(chat_error(R"(, "top_logprobs": 3)"), HasSubstr("400 top_logprobs "));
  EXPECT_THAT(chat_error(R"(, "logprobs": true, "top_logprobs": 21)"), HasSubstr("400 top_logprobs "));
  EXPECT_THAT(chat_error(R"(, "stream_options": {"include_usage": true})"), HasSubstr("400 stream_options "));
  EXPECT_THAT(chat_error(R"(, "stream": true, "stream_options": {"x": true})"), HasSubstr("400 stream_options "));
  EXPECT_THAT(chat_error(R"(, "tools": [{"name": "f"}])"), HasSubstr("400 tools "));
  EXPECT_THAT(chat_error(R"(, "chat_template_kwargs": 1)"), HasSubstr("400 chat_template_kwargs "));
}

TEST(ServeRequest, MessagesThatAreNoneAreExplained) {
  const auto error = [](const std::string& messages) {
    return error_of([&] { (void)parse_chat_request(parse_body("{\"messages\": " + messages + "}"), {}); });
  };
  EXPECT_THAT(error("[]"), HasSubstr("400 messages "));
  EXPECT_THAT(error("\"Hi\""), HasSubstr("400 messages "));
  EXPECT_THAT(error("[\"Hi\"]"), HasSubstr("400 messages message 0"));
  EXPECT_THAT(error(R"([{"role": "user"}])"), HasSubstr("400 messages message 0"));
  EXPECT_THAT(error(R"([{"role": "user", "content": [{"type": "image_url"}]}])"), HasSubstr("400 messages message 0"));
  EXPECT_THAT(error_of([] { (void)parse_chat_request(parse_body("{}"), {}); }), HasSubstr("400 messages "));
  EXPECT_THAT(error_of([] { (void)parse_chat_request(parse_body("[]"), {}); }), HasSubstr("expected a JSON object"));
}

TEST(ServeRequest, ToolsAreOfferedUnlessTheChoiceIsNone) {
  const std::string tools = R"(, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}])";
  EXPECT_TRUE(chat(tools).calls_tools);
  EXPECT_TRUE(chat(tools + R"(, "tool_choice": "auto")").calls_tools);
  EXPECT_FALSE(chat(tools).conversation.tools.is_null());
  for (const std::string& keys : {tools + R"(, "tool_choice": "none")", R"(, "tool_choice": "none")" + tools}) {
    EXPECT_FALSE(chat(keys).calls_tools);
    EXPECT_TRUE(chat(keys).conversation.tools.is_null());
  }
  EXPECT_FALSE(chat(R"(, "tools": [])").calls_tools);
  EXPECT_TRUE(chat(tools + R"(, "parallel_tool_calls": false)").one_call);
}

TEST(ServeRequest, FaultsOfTheTextHaveAPosition) {
  const auto error = [](const std::string& text) { return error_of([&] { (void)parse_body(text); }); };
  EXPECT_THAT(error(""), HasSubstr("400 - the body:1:1"));
  EXPECT_THAT(error("{\"a\": \xff}"), HasSubstr("400 - the body:1:"));
  EXPECT_THAT(error("{\"a\": \"\xc3\"}"), HasSubstr("400 - the body:1:"));
  EXPECT_THAT(error(R"({"n": 1, "n": 2})"), HasSubstr("400 - the body:1:"));
  EXPECT_THAT(error(std::string(100000, '[')), HasSubstr("400 - the body:1:"));
}

TEST(ServeApiKey, OnlyTheKeyIsLetIn) {
  EXPECT_TRUE(is_authorized("Bearer secret", "secret"));
  EXPECT_TRUE(is_authorized("bearer secret", "secret"));
  for (const char* wrong : {"", "Bearer", "Bearer ", "secret", "Bearer secre", "Bearer secrets", "Bearer secreT",
                            "Basic secret", "Bearersecret"})
    EXPECT_FALSE(is_authorized(wrong, "secret")) << wrong;
  EXPECT_FALSE(is_authorized("Bearer ", "secret"));
  EXPECT_THROW(check_api_key("two words"), Error);
  EXPECT_THROW(check_api_key("line\n"), Error);
}

TEST(ServeApiKey, NamesThatOthersChoseAreNoOwnHosts) {
  for (const char* own :
       {"localhost", "localhost:8080", "127.0.0.1:8080", "192.168.1.5", "[::1]:8080", "LOCALHOST", ""})
    EXPECT_TRUE(is_own_host(own, "127.0.0.1")) << own;
  for (const char* other : {"evil.example", "evil.example:8080", "localhost.evil.example", "[evil]"})
    EXPECT_FALSE(is_own_host(other, "127.0.0.1")) << other;
  EXPECT_TRUE(is_own_host("box.local:80", "box.local"));
  EXPECT_TRUE(is_loopback("127.0.0.2") && is_loopback("::1") && is_loopback("localhost"));
  EXPECT_FALSE(is_loopback("0.0.0.0") || is_loopback("::") || is_loopback("10.0.0.1") || is_loopback("box.local"));
}

}  // namespace
}  // namespace quench::serve
