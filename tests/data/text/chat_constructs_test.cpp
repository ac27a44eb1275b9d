// Templates with the constructs of gpt-oss's (channels: macros that call themselves, namespaces, dates, tools as types)
// and of Gemma's (turns: alternating roles, the system message in the first question), against what Transformers
// renders (chat_templates/make_constructs.py), and the targets of their turns.

#include "data/text/chat_renderer.h"
#include "data/text/document_encoder.h"
#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"

namespace quench {
namespace {

using testing::expect_error;

struct Constructs {
  const char* name;
  std::vector<std::string> special_tokens;
  int refused;
};

const Constructs kChannels{
    "channels", {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"}, 4};
const Constructs kTurns{"turns", {"<bos>", "<|turn>", "<turn|>", "<|image>"}, 4};

// The golden tokenizer with these special tokens, a first one "<bos>" being its BOS token.
std::unique_ptr<Tokenizer> tokenizer_of(const Constructs& constructs) {
  const auto tokenizer =
      testing::with_special_tokens(*load_tokenizer(testing::golden_dir() / "tokenizer"), constructs.special_tokens);
  const testing::TempDir folder;
  tokenizer->save(folder.path());
  if (constructs.special_tokens.front() == "<bos>")
    testing::write_file(folder / "tokenizer_config.json", R"({"bos_token": "<bos>"})");
  return load_tokenizer(folder.path());
}

// A template and what is rendered of it.
struct Rendering {
  explicit Rendering(const Constructs& constructs)
      : tokenizer(tokenizer_of(constructs)),
        figures(Json::parse_file(folder() / fmt::format("{}.json", constructs.name))),
        renderer(testing::read_file(folder() / fmt::format("{}.jinja", constructs.name)), "t.jinja", *tokenizer,
                 figures.at("date").as_string()) {}

  static std::filesystem::path folder() { return testing::source_dir() / "tests/data/chat_templates"; }
  [[nodiscard]] std::string targets(std::string_view title) const {
    Conversation conversation;
    for (const Json& c : figures.at("cases").as_array())
      if (c.at("title").as_string() == title) conversation = openai_conversation(c);
    const std::vector<Document> documents{
        {.pieces = renderer.render(conversation, TrainOn::assistant), .complete = true}};
    const EncodedDocument encoded = DocumentEncoder(*tokenizer, {}).encode(documents).front();
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < encoded.ids.size(); ++i)
      if (encoded.targets[i] != 0) ids.push_back(encoded.ids[i]);
    return tokenizer->decode(ids);
  }

  std::unique_ptr<Tokenizer> tokenizer;
  Json figures;
  ChatRenderer renderer;
};

std::string whole_text(const std::vector<DocumentPiece>& pieces) {
  std::string text;
  for (const DocumentPiece& piece : pieces) text += piece.text;
  return text;
}

class ChatConstructs : public ::testing::TestWithParam<Constructs> {};

TEST_P(ChatConstructs, TextsMatchTransformers) {
  const Rendering given(GetParam());
  int refused = 0;
  for (const Json& c : given.figures.at("cases").as_array()) {
    SCOPED_TRACE(c.at("title").as_string());
    const Conversation conversation = openai_conversation(c);
    const bool prompt = c.at("for_generation").as_bool();
    const auto render = [&] {
      return whole_text(prompt ? given.renderer.prompt(conversation)
                               : given.renderer.render(conversation, TrainOn::all));
    };
    if (c.at("text").is_null()) {
      expect_error(ErrorCode::invalid_argument, {"t.jinja", "the template refuses the conversation"},
                   [&] { (void)render(); });
      ++refused;
      continue;
    }
    EXPECT_EQ(render(), c.at("text").as_string());
  }
  EXPECT_EQ(refused, GetParam().refused);
}

INSTANTIATE_TEST_SUITE_P(Templates, ChatConstructs, ::testing::Values(kChannels, kTurns),
                         [](const auto& constructs) { return std::string(constructs.param.name); });

TEST(ChannelsTemplate, TargetsAreTheAssistantsMessages) {
  const Rendering given(kChannels);
  EXPECT_EQ(given.targets("question and answer"), "<|channel|>final<|message|>Sure.<|return|>");
  EXPECT_EQ(
      given.targets("developer"),
      "<|channel|>analysis<|message|>Done.<|end|><|start|>assistant<|channel|>final<|message|>21 \u00b0C.<|return|>");
  EXPECT_EQ(given.targets("system"),
            "<|channel|>final<|message|>Sure.<|end|><|channel|>analysis<|message|>Done.<|end|><|start|>assistant"
            "<|channel|>final<|message|>21 \u00b0C.<|return|>");
  const std::string call =
      " to=functions.weather<|channel|>commentary json<|message|>{\"place\": \"Z\u00fcrich\", \"days\": 2, \"exact\": "
      "null}<|call|>";
  EXPECT_EQ(given.targets("call and result"),
            call +
                "<|channel|>analysis<|message|>Done.<|end|><|start|>assistant<|channel|>final<|message|>21 \u00b0C."
                "<|return|>");
  EXPECT_EQ(given.targets("call at the end"), "<|channel|>analysis<|message|>I ask.<|end|><|start|>assistant" + call);
}

TEST(TurnsTemplate, TargetsAreTheAssistantsMessages) {
  const Rendering given(kTurns);
  EXPECT_EQ(given.targets("system"), "Sure.<turn|>Sure.<turn|>");
  EXPECT_EQ(given.targets("white space"), "A<turn|>");
}

TEST(TurnsTemplate, TurnsEndWithASpecialToken) {
  EXPECT_EQ(Rendering(kChannels).renderer.end_of_turn(), "<|return|>");
  EXPECT_EQ(Rendering(kTurns).renderer.end_of_turn(), "<turn|>");
}

}  // namespace
}  // namespace quench
