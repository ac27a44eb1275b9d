// Targets of templates that index, look ahead, write turns outside of their loop, or end a turn with the next one.

#include "data/text/chat_renderer.h"
#include "data/text/document_encoder.h"
#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"
#include "tests/train/metrics/captured_log.h"

namespace quench {
namespace {

using testing::expect_error;

class ChatTurns : public ::testing::Test {
 protected:
  EncodedDocument encode(const std::string& source, const std::string& record, TrainOn train_on = TrainOn::assistant) {
    notes_ = {};
    const ChatRenderer renderer(source, "t.jinja", *tokenizer_, "");
    const std::vector<Document> documents{
        {.pieces = renderer.render(openai_conversation(Json::parse(record)), train_on, &notes_), .complete = true}};
    return DocumentEncoder(*tokenizer_, {}).encode(documents).front();
  }
  std::string targets(const std::string& source, const std::string& record, TrainOn train_on = TrainOn::assistant) {
    const EncodedDocument document = encode(source, record, train_on);
    std::string text;
    bool inside = false;
    for (std::size_t i = 0; i < document.ids.size(); ++i) {
      const bool target = document.targets[i] != 0;
      if (target && !inside && !text.empty()) text += "|";
      inside = target;
      if (target) text += tokenizer_->decode(std::span(&document.ids[i], 1));
    }
    return text;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = testing::with_special_tokens(
      *load_tokenizer(testing::golden_dir() / "tokenizer"),
      {"<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|observation|>", "<think>", "</think>"});
  RecordNotes notes_;
};

constexpr const char* kPrompt = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kTwoTurns = R"({"messages": [{"role": "user", "content": "Uone"},
  {"role": "assistant", "content": "Aone"}, {"role": "user", "content": "Utwo"},
  {"role": "assistant", "content": "Atwo"}]})";
constexpr const char* kBoth = "Aone<|im_end|>|Atwo<|im_end|>";

TEST_F(ChatTurns, TemplatesThatTakeListsOfPartsAloneGetTextsAsOnePart) {
  const std::string parts =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}"
      "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}";
  const testing::CapturedLog log;
  EXPECT_EQ(targets(parts + kPrompt, kTwoTurns), kBoth);
  EXPECT_THAT(log.text(), ::testing::HasSubstr("t.jinja: the chat template reads contents as lists of parts only"));
}

// A template that knows no tools: the answer of calls alone is its end, and a warning counts what is not written.
TEST_F(ChatTurns, CallsThatTheTemplateDoesNotWriteLeaveTheTokenThatEndsTheTurn) {
  const std::string record = R"({"messages": [{"role": "user", "content": "Uone"},
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "content": "Utwo"}, {"role": "assistant", "content": "Atwo"}]})";
  const std::string turn = "<|im_start|>{{ @.role }}\n{{ @.content }}<|im_end|>\n";
  for (const std::string& loop : {"{% for m in messages %}" + turn, "{% for i in range(messages | length) %}" + turn}) {
    std::string source = loop + "{% endfor %}" + kPrompt;
    const std::string variable = loop.find(" i in ") == std::string::npos ? "m" : "messages[i]";
    for (std::size_t at; (at = source.find('@')) != std::string::npos;) source.replace(at, 1, variable);
    EXPECT_EQ(targets(source, record), "<|im_end|>|Atwo<|im_end|>") << source;
    EXPECT_EQ(notes_.unwritten.at("tool_calls"), 1) << source;
  }
  // Nothing of the turn is there.
  const std::string without =
      "{% for m in messages if m.content %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
  expect_error(ErrorCode::invalid_argument, {"message 1", "t.jinja does not render this assistant turn"},
               [&] { (void)targets(without, record); });
}

// An empty answer is located by a rendering with a text: headers may differ from the generation prompt, and the next
// turn may write the end. Text of other messages is never trained.
TEST_F(ChatTurns, AnEmptyAnswerIsTheTokenThatEndsTheTurn) {
  const std::string record = R"({"messages": [{"role": "user", "content": "Uone"},
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "content": "Utwo"}, {"role": "assistant", "content": "Atwo"}]})";
  const auto source = [](const std::string& answer, const std::string& result, const std::string& prompt) {
    return "{% for m in messages %}{% if m.role == 'assistant' %}" + answer + "{% elif m.role == 'tool' %}" + result +
           "{% else %}<|user|>{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}" + prompt +
           "{% endif %}";
  };
  const std::string result = "<|observation|>{{ m.content }}";
  EXPECT_EQ(targets(source("<|assistant|>{{ m.content }}<|im_end|>", result, "<|assistant|><think>"), record),
            "<|im_end|>|Atwo<|im_end|>");
  EXPECT_EQ(targets(source("<|assistant|>{{ m.content }}", result, "<|assistant|>"), record), "<|observation|>|Atwo");
  expect_error(ErrorCode::invalid_argument, {"message 1", "t.jinja does not render this assistant turn"}, [&] {
    (void)targets(source("<|assistant|>{{ m.content }}", "{{ m.content }}", "<|assistant|>"), record);
  });
}

// As in Transformers a null content is absent where the template renders that, and empty elsewhere.
TEST_F(ChatTurns, ANullContentIsAbsent) {
  const std::string record = R"({"messages": [{"role": "user", "content": "Uone"},
    {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]},
    {"role": "assistant", "content": "Atwo"}]})";
  const auto text = [&](const std::string& content) {
    return targets("{% for m in messages %}" + content + "<|im_end|>{% endfor %}", record, TrainOn::all);
  };
  EXPECT_EQ(text("{% if m.content is string %}S{{ m.content }}{% endif %}"),
            "SUone<|im_end|><|im_end|>SAtwo<|im_end|>");
  EXPECT_EQ(text("{% if m.content is defined %}D{{ m.content }}{% endif %}"),
            "DUone<|im_end|><|im_end|>DAtwo<|im_end|>");
  EXPECT_EQ(text("S{{ m.content + '' }}"), "SUone<|im_end|>S<|im_end|>SAtwo<|im_end|>");
}

// Python's repr() of arguments writes the marks of texts as they are.
TEST_F(ChatTurns, ArgumentsPrintedAsPythonPrintsThem) {
  EXPECT_EQ(
      targets("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
              "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}{% endfor %}<|im_end|>\n"
              "{% endfor %}" +
                  std::string(kPrompt),
              R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls":
                      [{"type": "function", "function": {"name": "f", "arguments": {"tags": ["a", 1, null, true]}}}]}]})"),
      "tags=['a', 1, None, True];<|im_end|>");
}

// A block after the loop, such as an end of the text, belongs to the answer before it.
TEST_F(ChatTurns, AGenerationBlockAfterTheLoopBelongsToTheLastAnswer) {
  const std::string source =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
      "<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}"
      "{% generation %}<|user|>{% endgeneration %}";
  EXPECT_EQ(targets(source, kTwoTurns), "Aone<|im_end|>|Atwo<|im_end|><|user|>");
  std::string untrained = kTwoTurns;
  untrained.replace(untrained.rfind("\"content\""), 0, "\"train\": false, ");
  EXPECT_EQ(targets(source, untrained), "Aone<|im_end|>");
}

TEST_F(ChatTurns, OutsideOfTheLoop) {
  const std::string turn = "<|im_start|>{{ @.role }}\n{{ @.content }}<|im_end|>\n";
  const auto of = [&](const std::string& variable) {
    std::string text = turn;
    for (std::size_t at; (at = text.find('@')) != std::string::npos;) text.replace(at, 1, variable);
    return text;
  };
  const std::string loop = "{% for m in messages@ %}" + of("m") + "{% endfor %}";
  const auto over = [&](const std::string& slice) { return std::string(loop).replace(loop.find('@'), 1, slice); };
  for (const std::string& source :
       {over("[:-1]") + of("messages[-1]") + kPrompt,
        "{% set last = messages[-1] %}" + over("[:-1]") + of("last") + kPrompt,
        of("messages[0]") + of("messages[1]") + over("[2:]") + kPrompt,
        "{% for i in range(messages | length) %}" + of("messages[i]") + "{% endfor %}" + kPrompt,
        "{% for i in range(0, messages | length, 2) %}" + of("messages[i]") + of("messages[i + 1]") + "{% endfor %}" +
            kPrompt,
        "{% for m in messages if m.role == 'user' %}" + of("m") + of("messages[2 * loop.index0 + 1]") + "{% endfor %}" +
            kPrompt,
        "{% for m in messages if m.role == 'assistant' %}" + of("messages[2 * loop.index0]") + of("m") +
            "{% endfor %}" + kPrompt,
        over("[:-1]") + of("messages[-1]"), over("")})
    EXPECT_EQ(targets(source, kTwoTurns), kBoth) << source;
  const std::string outside = over("[:-1]") + of("messages[-1]") + kPrompt;
  EXPECT_EQ(targets(outside, kTwoTurns, TrainOn::last), "Atwo<|im_end|>");
  EXPECT_EQ(targets(outside, R"({"messages": [{"role": "user", "content": "Uone"},
    {"role": "assistant", "content": "Aone"}, {"role": "user", "content": "Utwo"},
    {"role": "assistant", "content": "Atwo", "train": false}]})"),
            "Aone<|im_end|>");
}

// Without a generation prompt a turn begins where the text of an answer does.
TEST_F(ChatTurns, WithoutAGenerationPrompt) {
  EXPECT_EQ(targets("{% for i in range(0, messages | length, 2) %}Q:{{ messages[i].content }}\n"
                    "A:{{ messages[i + 1].content }}<|im_end|>\n{% endfor %}",
                    kTwoTurns),
            kBoth);
  EXPECT_EQ(targets("{% for m in messages %}{% if m.role == 'user' %}Q:{{ m.content }}\n{% if loop.nextitem is defined "
                    "and loop.nextitem.role == 'assistant' %}A:{{ loop.nextitem.content }}<|im_end|>\n{% endif %}"
                    "{% endif %}{% endfor %}",
                    kTwoTurns),
            kBoth);
  EXPECT_EQ(
      targets("{% for m in messages %}{{ m.role }}: {% for c in m.tool_calls or [] %}<call>{{ c.function.name }}"
              "{% endfor %}{{ m.content }}<|im_end|>\n{% endfor %}",
              R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls":
                       [{"type": "function", "function": {"name": "f", "arguments": {}}}]}]})"),
      "<call>f<|im_end|>");
}

TEST_F(ChatTurns, LookingAhead) {
  const std::string source =
      std::string(
          "{% for m in messages %}{% if loop.previtem is not defined or loop.previtem.role != m.role %}"
          "<|im_start|>{{ m.role }}\n{% endif %}{{ m.content }}{% if loop.nextitem is not defined or "
          "loop.nextitem.role != m.role %}<|im_end|>\n{% endif %}{% endfor %}") +
      kPrompt;
  EXPECT_EQ(targets(source, kTwoTurns), kBoth);
}

TEST_F(ChatTurns, TheNextTurnWritesTheEnd) {
  constexpr const char* kNext =
      "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";
  EXPECT_EQ(targets(kNext, kTwoTurns), "Aone<|user|>|Atwo");
  EXPECT_EQ(notes_.unended, 1U);
  EXPECT_EQ(ChatRenderer(kNext, "t", *tokenizer_, "").end_of_turn(), "<|user|>");
  // By indices too.
  constexpr const char* kIndexed =
      "{% for i in range(messages | length) %}<|{{ messages[i].role }}|>\n{{ messages[i].content }}\n{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";
  EXPECT_EQ(targets(kIndexed, kTwoTurns), "Aone\n<|user|>|Atwo\n");
  // A template with an end of its own.
  constexpr const char* kEnded = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}<|user|>";
  EXPECT_EQ(targets(kEnded, kTwoTurns), "Aone<|user|>|Atwo<|user|>");
  EXPECT_EQ(notes_.unended, 0U);
}

TEST_F(ChatTurns, ResultsOfToolsInTheAssistantsTurn) {
  constexpr const char* kTools = R"({"messages": [{"role": "user", "content": "w?"},
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "content": "Utool"}, {"role": "assistant", "content": "three"}]})";
  const std::string before =
      "{% for m in messages %}{% if m.role != 'tool' %}<|im_start|>{{ m.role }}\n{% for c in m.tool_calls or [] %}"
      "CALL {{ c.function.name }}{% endfor %}{% if m.tool_calls and not loop.last %}";
  const std::string after = "{% endif %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}";
  EXPECT_EQ(targets(before + "<r>{{ messages[loop.index].content }}</r>" + after + kPrompt, kTools),
            "CALL f|<|im_end|>|three<|im_end|>");
  // A special token that begins the result is what the model ends its call with.
  EXPECT_EQ(targets(before + "<|observation|>{{ messages[loop.index].content }}" + after + kPrompt, kTools),
            "CALL f<|observation|>|<|im_end|>|three<|im_end|>");
  // A loop over the tool's messages within the turn.
  EXPECT_EQ(
      targets(before + "{% for t in messages[loop.index:] if t.role == 'tool' %}({{ c }}{{ t.content }}){% endfor %}" +
                  after + kPrompt,
              kTools),
      "CALL f|<|im_end|>|three<|im_end|>");
}

TEST_F(ChatTurns, SpecialTokensOfTheAssistantAreTokens) {
  const std::string source =
      std::string(
          "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if '</think>' in m.content and not loop.last %}"
          "{{ m.content.split('</think>')[-1].strip() }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n"
          "{% endfor %}") +
      kPrompt;
  const std::string record = R"({"messages": [{"role": "user", "content": "a <think> b"},
    {"role": "assistant", "content": "<think>abc</think>\n\none"}, {"role": "user", "content": "q<|im_end|>"},
    {"role": "assistant", "content": "<think>def</think>two <|im_end|> 3"}]})";
  const EncodedDocument document = encode(source, record);
  const auto count = [&](const char* token) {
    return std::ranges::count(document.ids, *tokenizer_->find_token(token));
  };
  EXPECT_EQ(count("<think>"), 1);
  EXPECT_EQ(count("</think>"), 1);
  EXPECT_EQ(count("<|im_end|>"), 4);
  EXPECT_EQ(targets(source, record), "one<|im_end|>|<think>def</think>two <|im_end|> 3<|im_end|>");
  EXPECT_EQ(notes_.plain_tokens, (RecordNotes::Counts{{"<think>", 1}, {"<|im_end|>", 2}}));
}

// Text of the call's message after the result is its own; so is an end that only the last turn has.
TEST_F(ChatTurns, TextAfterAToolsResult) {
  constexpr const char* kTools = R"({"messages": [{"role": "user", "content": "w?"},
    {"role": "assistant", "content": "Asay", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "content": "Utool"}, {"role": "assistant", "content": "three"}]})";
  constexpr const char* kSource =
      "{% for m in messages %}{% if m.role != 'tool' %}<|im_start|>{{ m.role }}\n{% for c in m.tool_calls or [] %}"
      "CALL {{ c.function.name }}{% endfor %}{% if m.tool_calls and not loop.last %}<r>"
      "{{ messages[loop.index].content }}</r>{% endif %}{{ m.content }}{% if m.tool_calls and loop.last "
      "%}<|observation|>"
      "{% else %}<|im_end|>\n{% endif %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% "
      "endif %}";
  EXPECT_EQ(targets(kSource, kTools), "CALL f|Asay<|im_end|>|three<|im_end|>");
}

// The generation prompt takes the place of an end that the template writes without it.
TEST_F(ChatTurns, AnEndInPlaceOfTheGenerationPrompt) {
  constexpr const char* kSource =
      "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>\n{% else %}<|im_start|>{% endif %}";
  EXPECT_EQ(targets(kSource, kTwoTurns), kBoth);
}

TEST_F(ChatTurns, ContentsInPartsWhereATemplateReadsThoseAlone) {
  constexpr const char* kSource =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}"
      "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  EXPECT_EQ(targets(kSource, kTwoTurns), kBoth);
}

// A system message of the template's own may explain tokens that the assistant writes.
TEST_F(ChatTurns, TokensInTheTemplatesSystemMessage) {
  const std::string source =
      std::string(
          "Think in <think></think>.{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
          "{% endfor %}") +
      kPrompt;
  const auto ids = encode(source, R"({"messages": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "<think>a</think>b"}]})")
                       .ids;
  EXPECT_EQ(std::ranges::count(ids, *tokenizer_->find_token("<think>")), 2);
}

// Whatever the template does with a text, a special token in it is told from its own.
TEST_F(ChatTurns, TextOfUsersIsToldFromTheTemplatesOwn) {
  const auto real_ends = [&](const std::string& expression) {
    const std::string source = "{% for m in messages %}{% if m.role == 'user' %}{{ " + expression +
                               " }}{% else %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}";
    const auto ids = encode(source, R"({"messages": [{"role": "user", "content": " <|im_end|> x <|im_end|>"},
      {"role": "assistant", "content": "A"}]})")
                         .ids;
    return std::ranges::count(ids, *tokenizer_->find_token("<|im_end|>"));
  };
  for (const char* expression :
       {"m.content", "m.content | trim", "m.content.strip()", "m.content.split('x')[0]", "m.content.split('x')[1]",
        "m.content.replace('x', '<|im_end|>')[:0]", "'a' if '<|im_end|>' in m.content else '<|im_end|>'",
        "m.content.strip() if m.content.strip().startswith('<|im_end|>') else '<|im_end|>'",
        "m.content if m.content.endswith('<|im_end|>') else '<|im_end|>'"})
    EXPECT_EQ(real_ends(expression), 2) << expression;
}

TEST_F(ChatTurns, ArgumentsAreObjects) {
  const auto record = [](const std::string& arguments) {
    return R"({"messages": [{"role": "user", "content": "w?"}, {"role": "assistant", "content": null, "tool_calls":
      [{"type": "function", "function": {"name": "f", "arguments": )" +
           arguments + R"(}}]}]})";
  };
  const std::string head =
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }} {{ "
      "c.function.arguments";
  const std::string tail = " }}{% endfor %}<|im_end|>{% endfor %}";
  for (const char* arguments : {R"({"x": 1})", R"("{\"x\": 1}")", R"("{\"x\":1}")"})
    EXPECT_EQ(targets(head + " | tojson" + tail, record(arguments)), R"(f {"x": 1}<|im_end|>)");
  EXPECT_EQ(targets(head + " | tojson" + tail, record("\"\"")), "f {}<|im_end|>");
  // Templates that join texts get the text.
  EXPECT_EQ(targets(head + " + '!'" + tail, record(R"("{\"x\":1}")")), R"(f {"x":1}!<|im_end|>)");
  EXPECT_EQ(targets(head + tail, record(R"("{\"x\":1}")")), R"(f {"x":1}<|im_end|>)");
  expect_error(ErrorCode::corrupt, {"message 1", "arguments of tool_calls[0]"},
               [&] { (void)targets(head + tail, record("\"{x\"")); });
  expect_error(ErrorCode::corrupt, {"message 1", "array"}, [&] { (void)targets(head + tail, record("\"[1]\"")); });
}

TEST_F(ChatTurns, ArgumentsOfTheTemplate) {
  constexpr const char* kSource =
      "{% if enable_thinking is defined and enable_thinking is false %}NO {% endif %}{{ mood | default('') }}"
      "{% for d in documents or [] %}{{ d.text }}{% endfor %}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor "
      "%}";
  const Tokenizer::ChatTemplateText templates{.text = kSource, .source = "t.jinja"};
  const auto text = [&](const std::string& more, const Json& kwargs = {}) {
    notes_ = {};
    const ChatRenderer renderer(templates, *tokenizer_, "", kwargs);
    std::string all;
    const Json record = Json::parse(
        R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])" + more + "}");
    for (const DocumentPiece& piece : renderer.render(openai_conversation(record), TrainOn::assistant, &notes_))
      all += piece.text;
    return all.substr(0, all.find("q<|im_end|>"));
  };
  EXPECT_EQ(text(""), "");
  EXPECT_EQ(text(R"(, "chat_template_kwargs": {"enable_thinking": false})"), "NO ");
  EXPECT_EQ(text(R"(, "chat_template_kwargs": "{\"enable_thinking\": false}")"), "NO ");
  EXPECT_EQ(text(R"(, "enable_thinking": false)"), "NO ");
  EXPECT_EQ(text(R"(, "mood": "glad", "documents": [{"title": "T", "text": "D"}])"), "gladD");
  EXPECT_EQ(text("", Json::parse(R"({"enable_thinking": false, "mood": "glad"})")), "NO glad");
  EXPECT_EQ(text(R"(, "enable_thinking": true)", Json::parse(R"({"enable_thinking": false})")), "");
  EXPECT_EQ(text(R"(, "chat_template_kwargs": {"other": 1}, "id": 7, "gone": null)"), "");
  EXPECT_EQ(notes_.record_keys, (RecordNotes::Counts{{"chat_template_kwargs.other", 1}, {"id", 1}}));
  expect_error(ErrorCode::bad_config, {"t.jinja", "'temper'", "data.chat_template_kwargs"},
               [&] { (void)text("", Json::parse(R"({"temper": 1})")); });
  expect_error(ErrorCode::corrupt, {"chat_template_kwargs", "array"},
               [&] { (void)text(R"(, "chat_template_kwargs": [1])"); });
}

TEST_F(ChatTurns, TemplatesByTheirUse) {
  const auto named = [](const std::string& name) {
    return Tokenizer::NamedTemplate{name, "{% for m in messages %}" + name + " {{ m.content }}<|im_end|>{% endfor %}",
                                    name};
  };
  Tokenizer::ChatTemplateText templates{
      .text = named("default").text, .source = "d", .named = {named("tool_use"), named("rag")}};
  const auto used = [&](const std::string& more) {
    const ChatRenderer renderer(templates, *tokenizer_, "");
    const Json record = Json::parse(
        R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])" + more + "}");
    const std::string text = renderer.render(openai_conversation(record), TrainOn::assistant).front().text;
    return text.substr(0, text.find(' '));
  };
  EXPECT_EQ(used(""), "default");
  EXPECT_EQ(used(R"(, "tools": [{"type": "function", "function": {"name": "f"}}])"), "tool_use");
  EXPECT_EQ(used(R"(, "functions": [{"name": "f"}])"), "tool_use");
  EXPECT_EQ(used(R"(, "documents": [{"text": "d"}])"), "default");
  EXPECT_EQ(used(R"(, "chat_template_kwargs": {"chat_template": "rag"})"), "rag");
  expect_error(ErrorCode::invalid_argument, {"\"none\"", "default, rag, tool_use"},
               [&] { (void)used(R"(, "chat_template_kwargs": {"chat_template": "none"})"); });
  templates.text.clear();
  EXPECT_EQ(used(R"(, "tools": [{"name": "f"}])"), "tool_use");
  expect_error(ErrorCode::invalid_argument, {"none named default"}, [&] { (void)used(""); });
}

}  // namespace
}  // namespace quench
