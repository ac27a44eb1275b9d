// Answers: text, function calls, log-probabilities and their JSON, and Prometheus' lines.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/serve/api/metrics.h"
#include "apps/serve/api/response.h"
#include "apps/serve/api/token_stream.h"
#include "apps/serve/api/tool_calls.h"
#include "tests/testing.h"

namespace quench::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kEnd = 256;  // no byte

class ServeAnswer : public ::testing::Test {
 protected:
  Choice choice(bool marks_calls = false) { return Choice(*tokenizer_, request_, stop_tokens_, {}, marks_calls); }
  // All pieces of the text.
  std::vector<Piece> add(Choice& choice, std::string_view text) {
    std::vector<Piece> pieces;
    for (const char c : text) {
      if (choice.finished()) break;
      const std::int32_t id = tokenizer_->encode(std::string_view(&c, 1), {.add_special_tokens = false}).front();
      pieces.push_back(choice.add({.token = id, .logprob = -0.5F, .top = {{.token = id, .logprob = -0.5F}}}));
    }
    return pieces;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer("bytes");
  std::vector<std::int64_t> stop_tokens_{kEnd};
  ApiRequest request_{.chat = true};
};

TEST_F(ServeAnswer, AStopTextEndsIt) {
  request_.stop = {"END"};
  Choice answer = choice();
  (void)add(answer, "one twoEND three");
  EXPECT_TRUE(answer.finished());
  EXPECT_EQ(answer.whole().text, "one two");
  EXPECT_EQ(answer.whole().finish_reason, "stop");
  EXPECT_EQ(answer.generated(), 10);
  EXPECT_TRUE(answer.end(EndReason::cancelled).empty());
}

TEST_F(ServeAnswer, TheStopTokenIsNotPartOfTheText) {
  Choice answer = choice();
  (void)add(answer, "one");
  EXPECT_TRUE(answer.add({.token = kEnd, .logprob = -1, .top = {}}).text.empty());
  EXPECT_EQ(answer.end(EndReason::stop_token).finish_reason, "stop");
  EXPECT_EQ(answer.whole().text, "one");
  EXPECT_EQ(answer.generated(), 4);
}

TEST_F(ServeAnswer, PiecesAreTheWhole) {
  request_.logprobs = true;
  request_.stop = {"zzz"};
  Choice answer = choice();
  std::string text;
  std::size_t tokens = 0;
  std::vector<Piece> pieces = add(answer, "gr\xc3\xbc\xc3\x9f zz dich zz");
  pieces.push_back(answer.end(EndReason::length));
  for (const Piece& piece : pieces) {
    text += piece.text;
    tokens += piece.tokens.size();
  }
  EXPECT_EQ(text, "gr\xc3\xbc\xc3\x9f zz dich zz");
  EXPECT_EQ(answer.whole().text, text);
  EXPECT_EQ(tokens, text.size());
  EXPECT_EQ(answer.whole().tokens.size(), tokens);
  EXPECT_EQ(answer.whole().finish_reason, "length");
}

TEST_F(ServeAnswer, CallsLeaveTheText) {
  request_.calls_tools = true;
  Choice answer = choice(true);
  (void)add(answer,
            "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, "
            "2]}}\n</tool_call>\n<tool_call>{\"name\": "
            "\"g\"}</tool_call>\n");
  EXPECT_EQ(answer.end(EndReason::stop_token).finish_reason, "tool_calls");
  EXPECT_EQ(answer.whole().text, "Let me see.");
  ASSERT_EQ(answer.whole().calls.size(), 2u);
  EXPECT_EQ(answer.whole().calls[0].name, "f");
  EXPECT_EQ(answer.whole().calls[0].arguments, R"({"x":[1,2]})");
  EXPECT_EQ(answer.whole().calls[1].arguments, "{}");
  EXPECT_NE(answer.whole().calls[0].id, answer.whole().calls[1].id);
}

TEST_F(ServeAnswer, WithoutParallelCallsTheFirstEndsIt) {
  request_.calls_tools = request_.one_call = true;
  Choice answer = choice(true);
  (void)add(answer, "<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{\"name\": \"g\"}</tool_call>");
  EXPECT_TRUE(answer.finished());
  EXPECT_EQ(answer.whole().calls.size(), 1u);
  EXPECT_EQ(answer.whole().finish_reason, "tool_calls");
}

TEST(ServeToolCalls, WhatIsNoCallStaysText) {
  const auto parse = [](const std::string& text, std::size_t piece) {
    ToolCallParser parser;
    std::vector<ToolCall> calls;
    std::string rest;
    for (std::size_t i = 0; i < text.size(); i += piece) rest += parser.push(text.substr(i, piece), calls);
    rest += parser.finish(calls);
    return std::pair(rest, calls.size());
  };
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{1000}}) {
    EXPECT_EQ(parse("a <tool_cal b \n", piece), std::pair(std::string("a <tool_cal b \n"), std::size_t{0}));
    EXPECT_EQ(parse("<tool_call>no json</tool_call>.", piece),
              std::pair(std::string("<tool_call>no json</tool_call>."), std::size_t{0}));
    EXPECT_EQ(parse("<tool_call>{\"name\": \"f\"", piece),
              std::pair(std::string("<tool_call>{\"name\": \"f\""), std::size_t{0}));
    EXPECT_EQ(parse("<tool_call>{\"name\": \"f\"}", piece), std::pair(std::string(), std::size_t{1}));
    EXPECT_EQ(parse("x <tool_call>{\"name\": \"f\"}</tool_call> y", piece),
              std::pair(std::string("x\ny"), std::size_t{1}));
    EXPECT_EQ(parse("<tool_call>{\"name\": \"f\"}</tool_call> y", piece), std::pair(std::string("y"), std::size_t{1}));
  }
}

TEST(ServeToolCalls, TheTemplateInUseDecides) {
  const quench::testing::TempDir folder;
  quench::testing::write_file(folder / "calls.jinja", "{{ messages[0].content }}<tool_call>");
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer("bytes");
  EXPECT_TRUE(writes_tool_calls(*tokenizer, (folder / "calls.jinja").string()));
  EXPECT_FALSE(writes_tool_calls(*tokenizer, "llama3"));
  EXPECT_FALSE(writes_tool_calls(*tokenizer, "auto"));
}

TEST_F(ServeAnswer, ChatsHaveTheFormOfOpenAi) {
  request_.logprobs = true;
  request_.top_logprobs = 1;
  std::vector<Choice> choices;
  choices.push_back(choice());
  (void)add(choices[0], "h\xc3");
  (void)choices[0].end(EndReason::length);
  const Json whole = ResponseForm(request_, *tokenizer_, "m").whole(choices, {3, 2, 1});
  EXPECT_EQ(whole.at("object"), Json("chat.completion"));
  EXPECT_TRUE(whole.at("id").as_string().starts_with("chatcmpl-"));
  EXPECT_EQ(whole.at("model"), Json("m"));
  const Json& answer = whole.at("choices").as_array().front();
  EXPECT_EQ(answer.at("message").at("role"), Json("assistant"));
  EXPECT_EQ(answer.at("message").at("content"), Json("h\xef\xbf\xbd"));
  EXPECT_EQ(answer.at("finish_reason"), Json("length"));
  const Json::Array& tokens = answer.at("logprobs").at("content").as_array();
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].at("token"), Json("h"));
  EXPECT_EQ(tokens[0].at("logprob"), Json(-0.5));
  EXPECT_EQ(tokens[1].at("bytes").as_array().front(), Json(0xc3));
  EXPECT_EQ(tokens[0].at("top_logprobs").as_array().front().at("token"), Json("h"));
  EXPECT_EQ(whole.at("usage").at("total_tokens"), Json(5));
  EXPECT_EQ(whole.at("usage").at("prompt_tokens_details").at("cached_tokens"), Json(1));
}

TEST_F(ServeAnswer, ChunksOfCallsAreNumbered) {
  request_.calls_tools = request_.include_usage = true;
  ResponseForm form(request_, *tokenizer_, "m");
  EXPECT_EQ(form.opening(1).at("choices").as_array().front().at("delta").at("role"), Json("assistant"));
  for (const int i : {0, 1}) {
    const Json chunk =
        form.chunk(0, {.text = {}, .calls = {ToolCall{"id", "f", "{}"}}, .tokens = {}, .finish_reason = {}});
    const Json& delta = chunk.at("choices").as_array().front().at("delta");
    EXPECT_EQ(delta.find("content"), nullptr);
    EXPECT_EQ(delta.at("tool_calls").as_array().front().at("index"), Json(i));
    EXPECT_TRUE(chunk.at("usage").is_null());
  }
  EXPECT_TRUE(form.usage_chunk({1, 2, 0}).at("choices").as_array().empty());
}

TEST_F(ServeAnswer, LogprobsOfCompletionsBeginWithTheEcho) {
  request_.chat = false;
  request_.logprobs = true;
  std::vector<Choice> choices;
  choices.push_back(choice());
  (void)choices[0].echo("ab", {{.token = 'a', .logprob = {}, .top = {}}, {.token = 'b', .logprob = -2.0F, .top = {}}},
                        true);
  (void)add(choices[0],
            "\xc3\xa9"
            "c");
  (void)choices[0].end(EndReason::length);
  const Json whole = ResponseForm(request_, *tokenizer_, "m").whole(choices, {});
  const Json& answer = whole.at("choices").as_array().front();
  EXPECT_EQ(answer.at("text"), Json("ab\xc3\xa9"
                                    "c"));
  const Json& logprobs = answer.at("logprobs");
  EXPECT_THAT(logprobs.at("token_logprobs").as_array(),
              ElementsAre(Json(), Json(-2.0), Json(-0.5), Json(-0.5), Json(-0.5)));
  EXPECT_THAT(logprobs.at("text_offset").as_array(), ElementsAre(Json(0), Json(1), Json(2), Json(3), Json(3)));
  EXPECT_EQ(logprobs.at("top_logprobs").as_array()[0], Json());
  EXPECT_EQ(logprobs.at("top_logprobs").as_array()[4].at("c"), Json(-0.5));
}

// Offsets are places in the text, which has special tokens in the echo of a text prompt alone.
TEST_F(ServeAnswer, OffsetsCountWhatTheTextHolds) {
  request_.chat = false;
  request_.logprobs = true;
  for (const bool verbatim : {true, false}) {
    std::vector<Choice> choices;
    choices.push_back(choice());
    const auto special = static_cast<std::int32_t>(kEnd);
    const std::string name = tokenizer_->token_text(special);
    (void)choices[0].echo(verbatim ? name + "a" : "a",
                          {{.token = special, .logprob = {}, .top = {}}, {.token = 'a', .logprob = -1.0F, .top = {}}},
                          verbatim);
    (void)add(choices[0], "b");
    (void)choices[0].end(EndReason::length);
    const Json whole = ResponseForm(request_, *tokenizer_, "m").whole(choices, {});
    const Json& offsets = whole.at("choices").as_array().front().at("logprobs").at("text_offset");
    const auto shown = verbatim ? std::ssize(name) : 0;
    EXPECT_THAT(offsets.as_array(), ElementsAre(Json(0), Json(shown), Json(shown + 1)));
  }
}

TEST(ServeTokenStream, IsBoundedAndEndsAreAlwaysTaken) {
  TokenStream stream;
  for (std::size_t i = 0; i < TokenStream::kMostEvents; ++i)
    ASSERT_TRUE(stream.push({.choice = 0, .token = SampledToken{}}));
  EXPECT_FALSE(stream.push({.choice = 0, .token = SampledToken{}}));
  EXPECT_TRUE(stream.push({.choice = 0, .token = {}, .end = EngineResult{}}));
  EXPECT_TRUE(stream.pop(std::chrono::milliseconds(0)));
  stream.close();
  EXPECT_FALSE(stream.pop(std::chrono::milliseconds(0)));
  EXPECT_FALSE(stream.push({.choice = 0, .token = SampledToken{}}));
}

TEST(ServeMetrics, LinesAreThoseOfPrometheus) {
  Metrics metrics;
  metrics.time_between_tokens.observe(0.004);
  metrics.time_between_tokens.observe(100);
  metrics.count_response("/health", 200);
  const std::string text = metrics.text({.running = 3});
  EXPECT_THAT(text, HasSubstr("# TYPE quench_requests_running gauge\nquench_requests_running 3\n"));
  EXPECT_THAT(text, HasSubstr("quench_time_between_tokens_seconds_bucket{le=\"0.0025\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("quench_time_between_tokens_seconds_bucket{le=\"0.005\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("quench_time_between_tokens_seconds_bucket{le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("quench_time_between_tokens_seconds_count 2\n"));
  EXPECT_THAT(text, HasSubstr("quench_http_responses_total{path=\"/health\",status=\"200\"} 1\n"));
}

}  // namespace
}  // namespace quench::serve
