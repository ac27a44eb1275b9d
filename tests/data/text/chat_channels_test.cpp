// A template with the constructs of gpt-oss's (macros that call themselves, namespaces, dates, tools as types), against
// what Transformers renders (chat_templates/make_channels.py), and the targets of its turns.

#include "data/text/chat_renderer.h"
#include "data/text/document_encoder.h"
#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;

class ChatChannels : public ::testing::Test {
 protected:
  static std::filesystem::path folder() { return testing::source_dir() / "tests/data/chat_templates"; }
  static std::string text_of(const std::vector<DocumentPiece>& pieces) {
    std::string text;
    for (const DocumentPiece& piece : pieces) text += piece.text;
    return text;
  }
  [[nodiscard]] static Conversation conversation(const Json& figures, std::string_view title) {
    for (const Json& c : figures.at("cases").as_array())
      if (c.at("title").as_string() == title) return openai_conversation(c);
    return {};
  }
  [[nodiscard]] std::string targets(std::string_view title, TrainOn train_on = TrainOn::assistant) const {
    const std::vector<Document> documents{
        {.pieces = renderer_.render(conversation(figures_, title), train_on), .complete = true}};
    const EncodedDocument encoded = DocumentEncoder(*tokenizer_, {}).encode(documents).front();
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < encoded.ids.size(); ++i)
      if (encoded.targets[i] != 0) ids.push_back(encoded.ids[i]);
    return tokenizer_->decode(ids);
  }

  Json figures_ = Json::parse_file(folder() / "channels.json");
  std::unique_ptr<Tokenizer> tokenizer_ = testing::with_special_tokens(
      *load_tokenizer(testing::golden_dir() / "tokenizer"),
      {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"});
  ChatRenderer renderer_{testing::read_file(folder() / "channels.jinja"), "channels.jinja", *tokenizer_,
                         figures_.at("date").as_string()};
};

TEST_F(ChatChannels, TextsAreThoseThatTransformersRenders) {
  int refused = 0;
  for (const Json& c : figures_.at("cases").as_array()) {
    SCOPED_TRACE(c.at("title").as_string());
    const Conversation given = openai_conversation(c);
    const bool prompt = c.at("add_generation_prompt").as_bool();
    const auto render = [&] {
      return text_of(prompt ? renderer_.prompt(given) : renderer_.render(given, TrainOn::all));
    };
    if (c.at("text").is_null()) {
      expect_error(ErrorCode::invalid_argument, {"channels.jinja", "the template refuses the conversation"},
                   [&] { (void)render(); });
      ++refused;
      continue;
    }
    EXPECT_EQ(render(), c.at("text").as_string());
  }
  EXPECT_EQ(refused, 4);
}

TEST_F(ChatChannels, TargetsAreTheAssistantsMessages) {
  EXPECT_EQ(targets("question and answer"), "<|channel|>final<|message|>Sure.<|return|>");
  EXPECT_EQ(
      targets("developer"),
      "<|channel|>analysis<|message|>Done.<|end|><|start|>assistant<|channel|>final<|message|>21 \u00b0C.<|return|>");
  EXPECT_EQ(targets("system"),
            "<|channel|>final<|message|>Sure.<|end|><|channel|>analysis<|message|>Done.<|end|><|start|>assistant"
            "<|channel|>final<|message|>21 \u00b0C.<|return|>");
  const std::string call =
      " to=functions.weather<|channel|>commentary json<|message|>{\"place\": \"Z\u00fcrich\", \"days\": 2, \"exact\": "
      "null}<|call|>";
  EXPECT_EQ(targets("call and result"),
            call +
                "<|channel|>analysis<|message|>Done.<|end|><|start|>assistant<|channel|>final<|message|>21 \u00b0C."
                "<|return|>");
  EXPECT_EQ(targets("call at the end"), "<|channel|>analysis<|message|>I ask.<|end|><|start|>assistant" + call);
}

TEST_F(ChatChannels, EndOfATurnIsASpecialToken) {
  EXPECT_EQ(renderer_.end_of_turn(), "<|return|>");
}

}  // namespace
}  // namespace quench
