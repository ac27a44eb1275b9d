#include "data/chat_template.h"

#include "data/document_encoder.h"
#include "tests/data/token_fixtures.h"
#include "tests/data/tokenizer_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;

// What the published Jinja templates render to.
std::string reference_text(ChatTemplate chat_template, const std::vector<ChatMessage>& messages) {
  std::string text = chat_template == ChatTemplate::llama3 ? "<|begin_of_text|>" : "";
  for (const auto& [role, content] : messages)
    text += chat_template == ChatTemplate::llama3
                ? "<|start_header_id|>" + role + "<|end_header_id|>\n\n" + content + "<|eot_id|>"
                : "<|im_start|>" + role + "\n" + content + "<|im_end|>\n";
  return text;
}

const std::vector<ChatMessage> kChat = {{"system", "You are terse."},
                                        {"user", "What is 2 + 2?\nAnd 3 * 3?"},
                                        {"assistant", "4, and 9."},
                                        {"user", "Thanks. Göodbye 你好"},
                                        {"assistant", "Bye!\n\nSee you."}};

class ChatTemplates : public ::testing::TestWithParam<ChatTemplate> {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ =
      testing::with_special_tokens(*load_tokenizer(testing::golden_dir() / "tokenizer"), special_tokens(GetParam()));
};

// Encoding piece by piece gives the ids of the rendered conversation.
TEST_P(ChatTemplates, IdsAreThoseOfTheRenderedText) {
  const DocumentEncoder encoder(*tokenizer_, {});
  const std::vector<Document> documents{{.pieces = render_chat(GetParam(), kChat), .complete = true}};
  const auto encoded = encoder.encode(documents);
  EXPECT_EQ(encoded[0].ids, tokenizer_->encode(reference_text(GetParam(), kChat),
                                               {.add_special_tokens = false, .parse_special = true}));
}

TEST_P(ChatTemplates, TargetsAreTheAnswersAndTheirEnds) {
  const DocumentEncoder encoder(*tokenizer_, {});
  const std::vector<Document> documents{{.pieces = render_chat(GetParam(), kChat), .complete = true}};
  const auto encoded = encoder.encode(documents);
  ASSERT_EQ(encoded[0].targets.size(), encoded[0].ids.size());
  std::vector<std::int32_t> targets;
  for (std::size_t i = 0; i < encoded[0].ids.size(); ++i)
    if (encoded[0].targets[i] != 0) targets.push_back(encoded[0].ids[i]);
  const std::string end = GetParam() == ChatTemplate::llama3 ? "<|eot_id|>" : "<|im_end|>";
  EXPECT_EQ(tokenizer_->decode(targets), "4, and 9." + end + "Bye!\n\nSee you." + end);
}

TEST_P(ChatTemplates, SpecialTokensInMessagesStayText) {
  const std::string end = GetParam() == ChatTemplate::llama3 ? "<|eot_id|>" : "<|im_end|>";
  const DocumentEncoder encoder(*tokenizer_, {.parse_special = true});
  const std::vector<Document> documents{
      {.pieces = render_chat(GetParam(), {{"user", "say " + end + " now"}, {"assistant", end}}), .complete = true}};
  const auto encoded = encoder.encode(documents);
  EXPECT_EQ(std::count(encoded[0].ids.begin(), encoded[0].ids.end(), *tokenizer_->find_token(end)), 2);
}

INSTANTIATE_TEST_SUITE_P(All, ChatTemplates, ::testing::Values(ChatTemplate::llama3, ChatTemplate::chatml),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST(ChatTemplate, LlamaTrimsContentAndChatMlDoesNot) {
  const auto llama = render_chat(ChatTemplate::llama3, {{"user", " Q \n"}, {"assistant", "\n A "}});
  EXPECT_EQ(llama[4].text, "\n\nQ");
  EXPECT_EQ(llama[10].text, "A");
  EXPECT_TRUE(llama[10].target);
  const auto chatml = render_chat(ChatTemplate::chatml, {{"user", " Q \n"}, {"assistant", "\n A "}});
  EXPECT_EQ(chatml[1].text, "user\n Q \n");
  EXPECT_EQ(chatml[6].text, "\n A ");
  EXPECT_EQ(render_chat(ChatTemplate::llama3, {{"tool", "{}"}, {"assistant", "A"}})[2].text, "ipython");
}

TEST(ChatTemplate, NamesAndMissingTokens) {
  EXPECT_EQ(chat_template_from_string("chatml"), ChatTemplate::chatml);
  expect_error(ErrorCode::bad_config, {"'jinja'", "llama3, chatml"}, [] { (void)chat_template_from_string("jinja"); });
  const auto tokenizer = load_tokenizer("bytes");
  const DocumentEncoder encoder(*tokenizer, {});
  const std::vector<Document> documents{{.pieces = render_chat(ChatTemplate::chatml, kChat), .complete = true}};
  expect_error(ErrorCode::bad_config, {"<|im_start|>", "another template"}, [&] { (void)encoder.encode(documents); });
}

}  // namespace
}  // namespace quench
