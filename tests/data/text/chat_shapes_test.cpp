// Templates in the shapes of published ones.

#include "data/chat/template_names.h"
#include "data/text/chat_renderer.h"
#include "data/text/document_encoder.h"
#include "data/text/record_notes.h"
#include "tests/data/tokenizer/tokenizer_fixtures.h"

namespace quench {
namespace {

class ChatShapes : public ::testing::Test {
 protected:
  std::string marked(const std::string& source, const std::string& record) {
    const ChatRenderer renderer(source, "t.jinja", *tokenizer_, "");
    const std::vector<Document> documents{
        {.pieces = renderer.render(openai_conversation(Json::parse(record)), TrainOn::assistant, &notes_),
         .complete = true}};
    const EncodedDocument document = DocumentEncoder(*tokenizer_, {}).encode(documents).front();
    std::string text;
    bool inside = false;
    for (std::size_t i = 0; i < document.ids.size(); ++i) {
      const bool target = document.targets[i] != 0;
      if (target != inside) text += target ? "(" : ")";
      inside = target;
      text += tokenizer_->decode(std::span(&document.ids[i], 1));
    }
    return text + (inside ? ")" : "");
  }

  std::unique_ptr<Tokenizer> tokenizer_ =
      testing::with_special_tokens(*load_tokenizer(testing::golden_dir() / "tokenizer"),
                                   {"<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[RESULTS]"});
  RecordNotes notes_;
};

// Mistral's: the user's turn ends with the header of the answer, so the token that begins a call is the model's.
TEST_F(ChatShapes, TheTokenThatBeginsACallIsTrained) {
  const std::string source =
      "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]"
      "{% elif m.tool_calls is defined %}[TOOL_CALLS]{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}"
      "<|im_end|>{% elif m.role == 'tool' %}[RESULTS]{{ m.content }}[RESULTS]"
      "{% else %}{{ ' ' + m.content }}<|im_end|>{% endif %}{% endfor %}";
  const std::string call = R"({"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function":
    {"name": "fun", "arguments": {}}}]}, {"role": "tool", "content": "Uresult"})";
  EXPECT_EQ(marked(source, R"({"messages": [{"role": "user", "content": "Uone"}, )" + call + "," + call +
                               R"(, {"role": "assistant", "content": "Aone"}]})"),
            "[INST]Uone[/INST]([TOOL_CALLS]fun<|im_end|>)[RESULTS]Uresult[RESULTS]([TOOL_CALLS]fun<|im_end|>)"
            "[RESULTS]Uresult[RESULTS]( Aone<|im_end|>)");
}

// The user's turn ends with the header of the first answer; the answer after a tool result writes its own.
TEST_F(ChatShapes, TheHeaderOfALaterAnswerIsNoTarget) {
  const std::string source =
      "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}<|im_end|>\n<|im_start|>\n"
      "{% elif m.role == 'tool' %}[RESULTS]{{ m.content }}<|im_end|>\n"
      "{% else %}{% if messages[loop.index0 - 1].role != 'user' %}<|im_start|>\n{% endif %}"
      "{% if m.tool_calls is defined %}[TOOL_CALLS]{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}"
      "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endif %}{% endfor %}";
  const std::string question = R"({"messages": [{"role": "user", "content": "Uone"}, )",
                    call = R"({"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function":
    {"name": "fun", "arguments": {}}}]}, {"role": "tool", "content": "Utwo"}, )",
                    answer = R"({"role": "assistant", "content": "Aone"})";
  const std::string called =
                        "[INST]Uone<|im_end|>\n<|im_start|>\n([TOOL_CALLS]fun<|im_end|>)\n[RESULTS]Utwo<|im_end|>\n",
                    again = "<|im_start|>\n([TOOL_CALLS]fun<|im_end|>)\n[RESULTS]Utwo<|im_end|>\n";
  EXPECT_EQ(marked(source, question + call + answer + "]}"), called + "<|im_start|>\n(Aone<|im_end|>)\n");
  EXPECT_EQ(marked(source, question + call + call + answer + "]}"),
            called + again + "<|im_start|>\n(Aone<|im_end|>)\n");
  EXPECT_EQ(marked(source, question + answer + R"(, {"role": "assistant", "content": "Atwo"}]})"),
            "[INST]Uone<|im_end|>\n<|im_start|>\n(Aone<|im_end|>)\n<|im_start|>\n(Atwo<|im_end|>)\n");
}

// No line after the header.
TEST_F(ChatShapes, TheHeaderOfASecondAnswerIsNoTarget) {
  const std::string source =
      "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}<|im_start|>{% else %}"
      "{% if messages[loop.index0 - 1].role == 'assistant' %}<|im_start|>{% endif %}{{ m.content }}<|im_end|>"
      "{% endif %}{% endfor %}";
  EXPECT_EQ(marked(source, R"({"messages": [{"role": "user", "content": "Uone"},
    {"role": "assistant", "content": "Aone"}, {"role": "assistant", "content": "Atwo"}]})"),
            "[INST]Uone<|im_start|>(Aone<|im_end|>)<|im_start|>(Atwo<|im_end|>)");
}

// DeepSeek-R1's: calls are written if `content is none` only.
TEST_F(ChatShapes, CallsOfANullContent) {
  const std::string source =
      "{% for m in messages %}{% if m.role == 'user' %}<|im_start|>{{ m.content }}{% endif %}"
      "{% if m.role == 'assistant' and m['content'] is none %}{% for c in m['tool_calls'] %}"
      "{{ 'call ' + c['function']['name'] + c['function']['arguments'] }}{% endfor %}<|im_end|>{% endif %}"
      "{% if m.role == 'assistant' and m['content'] is not none %}{{ m['content'] + '<|im_end|>' }}{% endif %}"
      "{% if m.role == 'tool' %}<|im_start|>{{ m.content }}<|im_start|>{% endif %}{% endfor %}";
  const std::string arguments = R"({\"a\": 1})";
  EXPECT_EQ(marked(source, R"({"messages": [{"role": "user", "content": "Uone"},
    {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "fun",
     "arguments": ")" + arguments +
                               R"("}}]}, {"role": "tool", "content": "Utwo"},
    {"role": "assistant", "content": null, "reasoning_content": "why"}, {"role": "user", "content": "Uthree"},
    {"role": "assistant", "content": "Aone"}]})"),
            "<|im_start|>Uone(call fun{\"a\": 1}<|im_end|>)<|im_start|>Utwo<|im_start|>(<|im_end|>)"
            "<|im_start|>Uthree(Aone<|im_end|>)");
}

// As above; without a content the template renders something, but not the call.
TEST_F(ChatShapes, CallsThatAnAbsentContentHides) {
  const std::string source =
      "{% for m in messages %}{% if m.role == 'user' %}<|im_start|>{{ m.content }}{% endif %}"
      "{% if m.role == 'assistant' and m['content'] is none %}{% for c in m['tool_calls'] %}"
      "{{ 'call ' + c['function']['name'] + c['function']['arguments'] }}{% endfor %}{% endif %}"
      "{% if m.role == 'assistant' and m['content'] is not none %}{{ m['content'] }}{% endif %}<|im_end|>{% endfor %}";
  EXPECT_EQ(marked(source, R"({"messages": [{"role": "user", "content": "Uone"},
    {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "fun",
     "arguments": "{}"}}]}]})"),
            "<|im_start|>Uone<|im_end|>(call fun{}<|im_end|>)");
}

// No tools are null, as in Transformers; a loop over them without a condition takes a list only.
TEST_F(ChatShapes, NoToolsAreAListWhereNullIsRejected) {
  const std::string messages =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
  const std::string chat = R"({"tools": [], "messages": [{"role": "user", "content": "Uone"},
    {"role": "assistant", "content": "Aone"}]})";
  const std::string text = "<|im_start|>user\nUone<|im_end|>\n<|im_start|>assistant\n(Aone<|im_end|>)\n";
  EXPECT_EQ(marked("{% for t in tools %}tool{% endfor %}" + messages, chat), text);
  EXPECT_EQ(marked("{% if tools is not none %}tools{% endif %}" + messages, chat), text);
}

// White space between two of the template's search strings ("</think>", the name of a role) may be stripped.
TEST_F(ChatShapes, SearchStringsWithWhiteSpaceBetweenThem) {
  const std::string source =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% set content = m.content %}"
      "{% if m.role == 'assistant' and '</think>' in content %}"
      "{{ content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].strip('\\n') }};"
      "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
      "{{ content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const auto answered = [&](const std::string& content) {
    return marked(source, R"({"messages": [{"role": "user", "content": "Uone"}, {"role": "assistant", "content": ")" +
                              content + R"("}]})");
  };
  const std::string question = "<|im_start|>user\nUone<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(answered(R"(<think>\nhm\n</think>\n\nassistant)"), question + "(hm;assistant<|im_end|>)\n");
  EXPECT_EQ(answered(R"(<think>\nassistant asks\n</think>\n\nyes)"), question + "(assistant asks;yes<|im_end|>)\n");
  EXPECT_EQ(answered(R"(<think>\nassistant\n</think>\n\nassistant\n)"),
            question + "(assistant;assistant\n<|im_end|>)\n");
}

// Llama 3.1's.
TEST_F(ChatShapes, AVariableThatOneBranchSetsIsStillRead) {
  const std::string source =
      "{% if custom_tools is defined %}{% set tools = custom_tools %}{% endif %}{% if not tools is defined %}"
      "{% set tools = none %}{% endif %}{% if tools is not none %}{{ tools | length }}{% endif %}"
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
  EXPECT_EQ(marked(source, R"({"tools": [{"type": "function", "function": {"name": "fun"}}], "messages": [
    {"role": "user", "content": "Uone"}, {"role": "assistant", "content": "Aone"}]})"),
            "1<|im_start|>user\nUone<|im_end|>\n<|im_start|>assistant\n(Aone<|im_end|>)\n");
  EXPECT_TRUE(notes_.record_keys.empty());
}

bool reads(const std::string& source, const char* name) {
  return template_names(source, "t.jinja").reads(name);
}

TEST(TemplateNames, AnArgumentIsReadUnlessEveryBranchBindsIt) {
  EXPECT_TRUE(reads("{% if a %}{% set tools = 1 %}{% endif %}{{ tools }}", "tools"));
  EXPECT_TRUE(
      reads("{% if a %}{% set tools = 1 %}{% elif b %}{% else %}{% set tools = 2 %}{% endif %}{{ tools }}", "tools"));
  EXPECT_FALSE(reads("{% if a %}{% set tools = 1 %}{% else %}{% set tools = 2 %}{% endif %}{{ tools }}", "tools"));
  EXPECT_FALSE(reads("{% if a %}{% set tools = 1 %}{{ tools }}{% endif %}", "tools"));
  EXPECT_TRUE(reads("{% if a %}{% set documents = 1 %}{% else %}{{ documents }}{% endif %}", "documents"));
  EXPECT_TRUE(reads("{% for tools in a %}{% set y = 1 %}{% endfor %}{{ tools }}", "tools"));
  EXPECT_TRUE(reads("{% macro f(tools) %}{{ tools }}{% endmacro %}{{ tools }}{{ f(1) }}", "tools"));
  EXPECT_FALSE(reads("{% set tools = 1 %}{% if a %}{{ tools }}{% endif %}{{ tools }}", "tools"));
  EXPECT_FALSE(reads("{% set tools %}{% if a %}b{% endif %}{% endset %}{{ tools }}", "tools"));
}

TEST(TemplateNames, AnyOtherNameIsTheTemplatesAfterItsFirstAssignment) {
  EXPECT_FALSE(reads("{% if a %}{% set x = 1 %}{% endif %}{{ x }}", "x"));
  EXPECT_FALSE(reads("{% if a %}{% set x = 1 %}{% else %}{{ x }}{% endif %}", "x"));
  EXPECT_FALSE(reads("{% for x in a %}{% endfor %}{{ x }}", "x"));
  EXPECT_FALSE(reads("{% macro f(x) %}{{ x }}{% endmacro %}{{ f(1) }}", "f"));
  EXPECT_TRUE(reads("{{ x }}{% set x = 1 %}{{ x }}", "x"));
  EXPECT_TRUE(reads("{% if x is not defined %}{% set x = 1 %}{% endif %}{{ x }}", "x"));
}

// Mistral's: the system message is one branch's variable.
TEST_F(ChatShapes, AColumnWithTheNameOfATemplatesVariableIsUnused) {
  const std::string source =
      "{% if messages[0].role == 'system' %}{% set system_message = messages[0].content %}{% endif %}"
      "{% for m in messages %}{% if m.role == 'user' %}[INST]{% if system_message is defined %}{{ system_message }}\n"
      "{% endif %}{{ m.content }}[/INST]{% elif m.role == 'assistant' %}{{ m.content }}<|im_end|>{% endif %}{% endfor "
      "%}";
  const std::string chat = R"({"role": "user", "content": "Uone"}, {"role": "assistant", "content": "Aone"}]})";
  EXPECT_EQ(marked(source, R"({"system_message": "column", "messages": [)" + chat),
            "[INST]Uone[/INST](Aone<|im_end|>)");
  EXPECT_EQ(notes_.record_keys, (RecordNotes::Counts{{"system_message", 1}}));
  EXPECT_EQ(marked(source, R"({"messages": [{"role": "system", "content": "Sone"}, )" + chat),
            "[INST]Sone\nUone[/INST](Aone<|im_end|>)");
}

}  // namespace
}  // namespace quench
