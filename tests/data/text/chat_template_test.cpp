#include "data/text/chat_template.h"

#include "data/text/chat_renderer.h"
#include "data/text/document_encoder.h"
#include "data/text/document_reader.h"
#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;

std::string decoded_targets(const Tokenizer& tokenizer, const EncodedDocument& document) {
  std::vector<std::int32_t> targets;
  for (std::size_t i = 0; i < document.ids.size(); ++i)
    if (document.targets[i] != 0) targets.push_back(document.ids[i]);
  return tokenizer.decode(targets);
}

const std::vector<ChatMessage> kConversation = {{"system", "You are terse."},
                                                {"user", "What is 2 + 2?\nAnd 3 * 3?"},
                                                {"assistant", "4, and 9."},
                                                {"user", "Thanks. Göodbye 你好"},
                                                {"assistant", "Bye!\n\nSee you."}};

const ChatTemplate* named(const char* name) {
  return &chat_templates().require(name);
}

class ChatTemplates : public ::testing::TestWithParam<const char*> {
 protected:
  EncodedDocument encode(const std::vector<ChatMessage>& messages, const EncoderOptions& options = {}) const {
    const DocumentEncoder encoder(*tokenizer_, options);
    const std::vector<Document> documents{{.pieces = render_chat(template_, messages), .complete = true}};
    return encoder.encode(documents).front();
  }
  [[nodiscard]] std::string end() const { return template_->special_tokens.back(); }
  [[nodiscard]] bool is_llama2() const { return template_->name == "llama2"; }

  const ChatTemplate* template_ = named(GetParam());
  std::unique_ptr<Tokenizer> tokenizer_ =
      testing::with_special_tokens(*load_tokenizer(testing::golden_dir() / "tokenizer"), template_->special_tokens);
};
using ChatTemplatesGolden = ChatTemplates;

// Encoding piece by piece gives the ids of what Transformers renders (chat_templates/make.py).
TEST_P(ChatTemplatesGolden, IdsMatchTransformers) {
  const Json figures = Json::parse_file(testing::source_dir() / "tests/data/chat_templates/rendered.json");
  int compared = 0;
  for (const Json& c : figures.at("cases").as_array()) {
    if (c.at("template").as_string() != GetParam()) continue;
    std::vector<ChatMessage> messages;
    for (const Json& message : c.at("messages").as_array())
      messages.push_back({message.at("role").as_string(), message.at("content").as_string()});
    const std::string& text = c.at("text").as_string();
    std::string rendered;
    for (const DocumentPiece& piece : render_chat(template_, messages)) rendered += piece.text;
    EXPECT_EQ(rendered, text);
    EXPECT_EQ(encode(messages).ids, tokenizer_->encode(text, {.add_special_tokens = false, .parse_special = true}))
        << c.at("conversation").as_string();
    ++compared;
  }
  EXPECT_GE(compared, 4);
}

// What model folders carry for other programs.
TEST_P(ChatTemplatesGolden, TheJinjaTextIsTheSameTemplate) {
  const ChatRenderer renderer(template_->jinja, "written", *tokenizer_, "");
  const auto whole = [](const std::vector<DocumentPiece>& pieces) {
    std::string text;
    for (const DocumentPiece& piece : pieces) text += piece.text;
    return text;
  };
  const Json figures = Json::parse_file(testing::source_dir() / "tests/data/chat_templates/rendered.json");
  for (const Json& c : figures.at("cases").as_array()) {
    if (c.at("template").as_string() != GetParam()) continue;
    Conversation conversation = openai_conversation(c);
    EXPECT_EQ(whole(renderer.render(conversation, TrainOn::assistant)), c.at("text").as_string());
  }
  std::vector<ChatMessage> messages = kConversation;
  if (!is_llama2()) messages.push_back({"tool", " 42\n"});
  if (is_llama2()) messages.push_back({"user", " And now? "});
  Json record = Json::array();
  for (const ChatMessage& message : messages)
    record.push_back(Json::Object{{"role", message.role}, {"content", message.content}});
  const Conversation conversation = openai_conversation(Json::Object{{"messages", std::move(record)}});
  EXPECT_EQ(whole(renderer.prompt(conversation)), whole(render_chat_prompt(template_, messages)));
  EXPECT_EQ(renderer.end_of_turn(), template_->end_of_turn);
  const std::vector<Document> documents{
      {.pieces = renderer.render(conversation, TrainOn::assistant), .complete = true}};
  const EncodedDocument rendered = DocumentEncoder(*tokenizer_, {}).encode(documents).front(), own = encode(messages);
  EXPECT_EQ(rendered.ids, own.ids);
  EXPECT_EQ(rendered.targets, own.targets);
}

TEST_P(ChatTemplates, TargetsAreTheAnswersAndTheirEnds) {
  const EncodedDocument encoded = encode(kConversation);
  ASSERT_EQ(encoded.targets.size(), encoded.ids.size());
  // The space on both sides of an answer belongs to it in Llama 2's template.
  const std::string space = is_llama2() ? " " : "";
  EXPECT_EQ(decoded_targets(*tokenizer_, encoded),
            space + "4, and 9." + space + end() + space + "Bye!\n\nSee you." + space + end());
}

TEST_P(ChatTemplates, SpecialTokensInMessagesStayText) {
  const EncodedDocument encoded = encode({{"user", "say " + end() + " now"}, {"assistant", end()}});
  EXPECT_EQ(std::count(encoded.ids.begin(), encoded.ids.end(), *tokenizer_->find_token(end())), is_llama2() ? 1 : 2);
}

TEST_P(ChatTemplates, AreFoundByTheTokenizersSpecialTokens) {
  // Llama 2's tokens have those names in many tokenizers: their ids tell.
  EXPECT_EQ(fitting_chat_template(*tokenizer_), is_llama2() ? nullptr : template_);
  ReaderOptions options{.chat_template = named("llama2")};
  resolve_chats(options, *tokenizer_);
  EXPECT_EQ(options.chat_template, named("llama2")) << "as it was asked for";
}

INSTANTIATE_TEST_SUITE_P(All, ChatTemplates, ::testing::Values("llama2", "llama3", "chatml"),
                         [](const auto& tested) { return std::string(tested.param); });
INSTANTIATE_TEST_SUITE_P(All, ChatTemplatesGolden, ::testing::Values("llama2", "llama3", "chatml"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(ChatTemplate, LlamaTrimsContentAndChatMlDoesNot) {
  const auto llama = render_chat(named("llama3"), {{"user", " Q \n"}, {"assistant", "\n A\u00a0"}});
  EXPECT_EQ(llama[4].text, "\n\nQ");
  EXPECT_EQ(llama[10].text, "A");
  EXPECT_TRUE(llama[10].target);
  const auto chatml = render_chat(named("chatml"), {{"user", " Q \n"}, {"assistant", "\n A "}});
  EXPECT_EQ(chatml[1].text, "user\n Q \n");
  EXPECT_EQ(chatml[6].text, "\n A ");
  EXPECT_EQ(render_chat(named("llama3"), {{"tool", "{}"}, {"assistant", "A"}})[2].text, "ipython");
}

TEST(ChatTemplate, Llama2TakesQuestionsAndAnswersInTurn) {
  const auto refused = [](const std::vector<ChatMessage>& messages, const std::string& what) {
    expect_error(ErrorCode::invalid_argument, {what}, [&] { (void)render_chat(named("llama2"), messages); });
  };
  refused({{"assistant", "A"}}, "message 0: role 'assistant'");
  refused({{"user", "Q"}, {"user", "Q"}, {"assistant", "A"}}, "message 1: role 'user'");
  refused({{"user", "Q"}, {"system", "S"}, {"assistant", "A"}}, "message 1: role 'system'");
  refused({{"user", "Q"}, {"assistant", "A"}, {"tool", "T"}}, "message 2: role 'tool'");
}

TEST(ChatTemplate, NamesAndMissingTokens) {
  EXPECT_EQ(chat_template_from_string("chatml"), named("chatml"));
  EXPECT_EQ(chat_template_from_string("auto"), nullptr);
  expect_error(ErrorCode::bad_config, {"'jinja'", "auto, llama3, chatml, llama2"},
               [] { (void)chat_template_from_string("jinja"); });
  const auto tokenizer = load_tokenizer("bytes");
  const DocumentEncoder encoder(*tokenizer, {});
  const std::vector<Document> documents{{.pieces = render_chat(named("chatml"), kConversation), .complete = true}};
  expect_error(ErrorCode::bad_config, {"<|im_start|>", "data.chat_template"}, [&] { (void)encoder.encode(documents); });
  EXPECT_EQ(fitting_chat_template(*tokenizer), nullptr);
  expect_error(ErrorCode::bad_config, {"data.chat_template", "llama3, chatml, llama2 or the path"},
               [] { (void)render_chat(nullptr, kConversation); });
}

}  // namespace
}  // namespace quench
