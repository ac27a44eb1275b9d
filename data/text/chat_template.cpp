#include "data/text/chat_template.h"

#include <algorithm>

#include "core/system/check.h"
#include "data/tokenizer/text/code_points.h"
#include "data/tokenizer/text/unicode.h"

namespace quench {
namespace {

// As Jinja's filter `trim` and Python's strip().
std::string_view trim(std::string_view text) {
  std::size_t begin = 0, end = 0;  // bounds of the rest
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_sequence_length(text, i), 1);
    const bool space = utf8_sequence_length(text, i) > 0 && is_python_space(decode_code_point(text, i));
    i += length;
    if (!space) end = i;
    if (space && end == 0) begin = i;
  }
  return end == 0 ? std::string_view() : text.substr(begin, end - begin);
}

void add_special(std::vector<DocumentPiece>& pieces, const char* token, bool target = false) {
  pieces.push_back({.text = token, .special = true, .target = target});
}

void add_text(std::vector<DocumentPiece>& pieces, std::string text, bool target = false) {
  pieces.push_back({.text = std::move(text), .target = target});
}

void add_answer(std::vector<DocumentPiece>& pieces, std::string_view chat_template, std::string text, bool target) {
  const bool markup = reads_special_tokens(chat_templates().find(chat_template), "assistant", text);
  pieces.push_back({.text = std::move(text), .target = target, .markup = markup});
}

// Per question and answer: <s>[INST] question [/INST] answer </s>, both trimmed. The system message begins the first
// question: <<SYS>>\nmessage\n<</SYS>>\n\n. Questions and answers alternate.
void render_llama2(const std::vector<ChatMessage>& messages, bool all, std::vector<DocumentPiece>& pieces) {
  const bool system = !messages.empty() && messages.front().role == "system";
  for (std::size_t i = system ? 1 : 0; i < messages.size(); ++i) {
    const auto& [role, content, train] = messages[i];
    const bool question = (i - (system ? 1 : 0)) % 2 == 0;
    QUENCH_CHECK(role == (question ? "user" : "assistant"),
                 "message {}: role '{}'; with the template llama2, user and assistant alternate after at most one "
                 "system message",
                 i, role);
    if (question) {
      const bool first = system && i == 1;
      const bool target = all && train && (!first || messages.front().train);
      const std::string before = first ? "<<SYS>>\n" + messages.front().content + "\n<</SYS>>\n\n" : std::string();
      add_special(pieces, "<s>", target);
      add_text(pieces, fmt::format("[INST] {} [/INST]", trim(before + content)), target);
    } else {
      add_text(pieces, fmt::format(" {} ", trim(content)), train);
      pieces.back().joined = true;
      add_special(pieces, "</s>", train);
    }
  }
}

// The generation prompt is the question's end.
void begin_llama2(std::vector<DocumentPiece>&, bool) {}

void begin_llama3(std::vector<DocumentPiece>& pieces, bool target) {
  add_special(pieces, "<|start_header_id|>", target);
  add_text(pieces, "assistant", target);
  add_special(pieces, "<|end_header_id|>", target);
  add_text(pieces, "\n\n", target);
}

void begin_chatml(std::vector<DocumentPiece>& pieces, bool target) {
  add_special(pieces, "<|im_start|>", target);
  add_text(pieces, "assistant\n", target);
}

// <|begin_of_text|>, then per message <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>, trimmed.
void render_llama3(const std::vector<ChatMessage>& messages, bool all, std::vector<DocumentPiece>& pieces) {
  add_special(pieces, "<|begin_of_text|>", all);
  for (const auto& [role, content, train] : messages) {
    const bool assistant = role == "assistant", every = all && train;
    if (assistant) {
      begin_llama3(pieces, every);
      add_answer(pieces, "llama3", std::string(trim(content)), train);
    } else {
      add_special(pieces, "<|start_header_id|>", every);
      add_text(pieces, role == "tool" ? "ipython" : role, every);
      add_special(pieces, "<|end_header_id|>", every);
      add_text(pieces, fmt::format("\n\n{}", trim(content)), every);
    }
    add_special(pieces, "<|eot_id|>", (assistant || all) && train);
  }
}

// Per message <|im_start|>role\ncontent<|im_end|>\n.
void render_chatml(const std::vector<ChatMessage>& messages, bool all, std::vector<DocumentPiece>& pieces) {
  for (const auto& [role, content, train] : messages) {
    const bool assistant = role == "assistant", every = all && train;
    if (assistant) {
      begin_chatml(pieces, every);
      add_answer(pieces, "chatml", content, train);
    } else {
      add_special(pieces, "<|im_start|>", every);
      add_text(pieces, role + "\n" + content, every);
    }
    add_special(pieces, "<|im_end|>", (assistant || all) && train);
    add_text(pieces, "\n", every);
  }
}

constexpr const char* kLlama3Jinja =
    R"({{ '<|begin_of_text|>' }}{% for m in messages %}{{ '<|start_header_id|>' }}{% if m['role'] == 'tool' %}{{ 'ipython' }}{% else %}{{ m['role'] }}{% endif %}{{ '<|end_header_id|>\n\n' }}{{ m['content'] | trim }}{{ '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})";
constexpr const char* kChatmlJinja =
    R"({% for m in messages %}{{ '<|im_start|>' }}{{ m['role'] }}{{ '\n' }}{{ m['content'] }}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";
constexpr const char* kLlama2Jinja =
    R"({% if messages[0]['role'] == 'system' %}{% set before = '<<SYS>>\n' + messages[0]['content'] + '\n<</SYS>>\n\n' %}{% set turns = messages[1:] %}{% else %}{% set before = '' %}{% set turns = messages %}{% endif %}{% for m in turns %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('user and assistant alternate after at most one system message') }}{% endif %}{% if m['role'] == 'user' %}{% if loop.first %}{% set question = before + m['content'] %}{% else %}{% set question = m['content'] %}{% endif %}{{ '<s>[INST] ' }}{{ question | trim }}{{ ' [/INST]' }}{% else %}{{ ' ' }}{{ m['content'] | trim }}{{ ' </s>' }}{% endif %}{% endfor %})";

bool owns_llama2_tokens(const Tokenizer& tokenizer) {
  return tokenizer.find_token("<s>") == 1 && tokenizer.find_token("</s>") == 2 && !tokenizer.find_token("[INST]");
}

bool fits(const ChatTemplate& known, const Tokenizer& tokenizer) {
  const bool has_tokens = std::ranges::all_of(known.special_tokens, [&](const std::string& token) {
    const auto id = tokenizer.find_token(token);
    return id && tokenizer.is_special(*id);
  });
  return has_tokens && (known.owns_tokens == nullptr || known.owns_tokens(tokenizer));
}

// Checks that every message is expressible.
const ChatTemplate& checked_template(const ChatTemplate* known, const std::vector<ChatMessage>& messages) {
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, known != nullptr,
      "chats need a template, and the tokenizer has none, nor the special tokens of a built-in one: set "
      "data.chat_template (tokenize, eval and generate: --chat-template) to one of {} or the path of a "
      ".jinja file, add the special tokens of one to the tokenizer by model.add_tokens (--add-token), or choose a "
      "tokenizer for chats",
      fmt::join(chat_templates().names(), ", "));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content, train] = messages[i];
    const bool assistant = role == "assistant";
    QUENCH_CHECK(assistant || role == "system" || role == "user" || role == "tool",
                 "message {}: role '{}'; known: system, user, assistant, tool", i, role);
    const bool blank = content.empty() || (known->trims && trim(content).empty());
    QUENCH_CHECK(!assistant || !blank, "message {}: the assistant's turn is empty", i);
  }
  return *known;
}

bool is_answer(const ChatMessage& message) {
  return message.role == "assistant";
}

}  // namespace

const ChoiceTable<ChatTemplate>& chat_templates() {
  static const ChoiceTable<ChatTemplate> table(
      "chat template",
      {{.name = "llama3",
        .special_tokens = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
        .render = render_llama3,
        .begin_answer = begin_llama3,
        .end_of_turn = "<|eot_id|>",
        .jinja = kLlama3Jinja},
       {.name = "chatml",
        .special_tokens = {"<|im_start|>", "<|im_end|>"},
        .render = render_chatml,
        .begin_answer = begin_chatml,
        .end_of_turn = "<|im_end|>",
        .jinja = kChatmlJinja,
        .trims = false},
       {.name = "llama2",
        .special_tokens = {"<s>", "</s>"},
        .render = render_llama2,
        .begin_answer = begin_llama2,
        .end_of_turn = "</s>",
        .jinja = kLlama2Jinja,
        .owns_tokens = owns_llama2_tokens}});
  return table;
}

std::vector<std::string> chat_template_names() {
  std::vector<std::string> names = chat_templates().names();
  names.emplace(names.begin(), "auto");
  return names;
}

const ChatTemplate* chat_template_from_string(std::string_view name) {
  const ChatTemplate* known = chat_templates().find(name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, known != nullptr || name == "auto",
                  "unknown chat template '{}'; known: {}, or the path of a .jinja file", name,
                  fmt::join(chat_template_names(), ", "));
  return known;
}

bool is_chat_template_file(std::string_view name) noexcept {
  return name.ends_with(".jinja");
}

const ChatTemplate* fitting_chat_template(const Tokenizer& tokenizer) {
  for (const ChatTemplate& known : chat_templates())
    if (fits(known, tokenizer)) return &known;
  return nullptr;
}

bool reads_special_tokens(const ChatTemplate* chat_template, std::string_view role, std::string_view text) {
  if (chat_template == nullptr || chat_template->name == "llama2" || role != "assistant") return false;
  return std::ranges::none_of(chat_template->special_tokens,
                              [&](const std::string& token) { return text.find(token) != std::string_view::npos; });
}

std::vector<DocumentPiece> render_chat(const ChatTemplate* chat_template, const std::vector<ChatMessage>& messages,
                                       bool all) {
  const ChatTemplate& known = checked_template(chat_template, messages);
  QUENCH_CHECK(std::ranges::any_of(messages, is_answer), "no assistant message: nothing to train on");
  std::vector<DocumentPiece> pieces;
  known.render(messages, all, pieces);
  return pieces;
}

std::vector<DocumentPiece> render_chat_prompt(const ChatTemplate* chat_template,
                                              const std::vector<ChatMessage>& messages) {
  const ChatTemplate& known = checked_template(chat_template, messages);
  QUENCH_CHECK(!messages.empty() && !is_answer(messages.back()), "the last message is the assistant's own");
  std::vector<DocumentPiece> pieces;
  known.render(messages, false, pieces);
  known.begin_answer(pieces, false);
  return pieces;
}

}  // namespace quench
