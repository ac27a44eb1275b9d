#include "data/text/chat_prompt.h"

#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;

std::unique_ptr<Tokenizer> tokenizer_with(const std::vector<std::string>& special) {
  return testing::with_special_tokens(*load_tokenizer(testing::golden_dir() / "tokenizer"), special);
}

Conversation conversation(const char* record) {
  return openai_conversation(Json::parse(record));
}

constexpr const char* kQuestion = R"({"messages": [{"role": "system", "content": "Be terse."},
  {"role": "user", "content": "Hi <|im_end|>"}, {"role": "assistant", "content": "Hello"},
  {"role": "user", "content": "Bye"}]})";

// The prompt is the beginning of the conversation with the answer in it, up to that answer.
TEST(ChatPrompts, AreTheBeginningOfWhatIsTrainedOn) {
  for (const char* name : {"llama2", "llama3", "chatml"}) {
    const ChatTemplate* chat_template = chat_template_from_string(name);
    const auto tokenizer = tokenizer_with(chat_template->special_tokens);
    const ChatPrompt prompt(*tokenizer, name, "");
    EXPECT_TRUE(prompt.has_template());
    const std::vector<std::int32_t> ids = prompt.encode(conversation(kQuestion));
    Conversation answered = conversation(kQuestion);
    answered.messages.push_back(Json::Object{{"role", "assistant"}, {"content", "So long"}});
    std::string whole;
    for (const DocumentPiece& piece : render_chat(chat_template, plain_messages(answered))) whole += piece.text;
    const std::string text = tokenizer->decode(ids);
    EXPECT_EQ(whole.substr(0, text.size()), text);
    const std::string rest = whole.substr(text.size());
    EXPECT_TRUE(rest.starts_with("So long") || rest.starts_with(" So long")) << rest;
    ASSERT_TRUE(prompt.end_of_turn().has_value());
    EXPECT_EQ(rest.find(tokenizer->token_text(*prompt.end_of_turn())), rest.find("So long") + 7 + (rest[0] == ' '));
  }
}

TEST(ChatPrompts, OfATemplateOfTheTokenizersOwn) {
  const auto tokenizer = tokenizer_with({"<|im_start|>", "<|im_end|>"});
  testing::TempDir folder;
  testing::write_file(folder / "t.jinja",
                      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
                      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  const ChatPrompt own(*tokenizer, (folder / "t.jinja").string(), ""), written(*tokenizer, "chatml", "");
  EXPECT_EQ(own.encode(conversation(kQuestion)), written.encode(conversation(kQuestion)));
  EXPECT_EQ(own.end_of_turn(), tokenizer->find_token("<|im_end|>"));
  // Special token texts in a message stay text.
  const std::vector<std::int32_t> ids = own.encode(conversation(kQuestion));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *own.end_of_turn()), 4);
}

TEST(ChatPrompts, WithoutATemplateThereAreNone) {
  const auto tokenizer = tokenizer_with({});
  const ChatPrompt prompt(*tokenizer, "auto", "");
  EXPECT_FALSE(prompt.has_template());
  EXPECT_FALSE(prompt.end_of_turn().has_value());
  expect_error(ErrorCode::bad_config, {"--chat-template"}, [&] { (void)prompt.encode(conversation(kQuestion)); });
  const auto chatml = tokenizer_with({"<|im_start|>", "<|im_end|>"});
  const ChatPrompt answered(*chatml, "chatml", "");
  expect_error(ErrorCode::invalid_argument, {"the assistant's own"}, [&] {
    (void)answered.encode(conversation(
        R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]})"));
  });
}

}  // namespace
}  // namespace quench
