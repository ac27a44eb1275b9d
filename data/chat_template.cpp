#include "data/chat_template.h"

#include "core/check.h"

namespace quench {
namespace {

// What the Jinja filter `trim` removes from ASCII text.
std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\v\f";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

void add_special(std::vector<DocumentPiece>& pieces, const char* token, bool target) {
  pieces.push_back({.text = token, .special = true, .target = target});
}

void add_text(std::vector<DocumentPiece>& pieces, std::string text, bool target) {
  pieces.push_back({.text = std::move(text), .target = target});
}

}  // namespace

std::string_view to_string(ChatTemplate chat_template) noexcept {
  return chat_template == ChatTemplate::llama3 ? "llama3" : "chatml";
}

ChatTemplate chat_template_from_string(std::string_view name) {
  if (name == "llama3") return ChatTemplate::llama3;
  if (name == "chatml") return ChatTemplate::chatml;
  QUENCH_FAIL(ErrorCode::bad_config, "unknown chat template '{}'; known: llama3, chatml", name);
}

std::vector<std::string> special_tokens(ChatTemplate chat_template) {
  if (chat_template == ChatTemplate::llama3)
    return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
  return {"<|im_start|>", "<|im_end|>"};
}

std::vector<DocumentPiece> render_chat(ChatTemplate chat_template, const std::vector<ChatMessage>& messages) {
  const bool llama3 = chat_template == ChatTemplate::llama3;
  std::vector<DocumentPiece> pieces;
  bool answered = false;
  if (llama3) add_special(pieces, "<|begin_of_text|>", false);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    const bool assistant = role == "assistant";
    QUENCH_CHECK(assistant || role == "system" || role == "user" || role == "tool",
                 "message {}: role '{}'; known: system, user, assistant, tool", i, role);
    const std::string body(llama3 ? trim(content) : std::string_view(content));
    QUENCH_CHECK(!assistant || !body.empty(), "message {}: the assistant says nothing", i);
    answered = answered || assistant;
    const std::string header_end = llama3 ? "\n\n" : "\n";
    if (llama3) {
      add_special(pieces, "<|start_header_id|>", false);
      add_text(pieces, role == "tool" ? "ipython" : role, false);
      add_special(pieces, "<|end_header_id|>", false);
    } else {
      add_special(pieces, "<|im_start|>", false);
    }
    std::string header = llama3 ? header_end : role + header_end;
    if (assistant) {
      add_text(pieces, std::move(header), false);
      add_text(pieces, body, true);
    } else {
      add_text(pieces, header + body, false);
    }
    add_special(pieces, llama3 ? "<|eot_id|>" : "<|im_end|>", assistant);
    if (!llama3) add_text(pieces, "\n", false);
  }
  QUENCH_CHECK(answered, "no assistant message: nothing to train on");
  return pieces;
}

}  // namespace quench
