#pragma once
// Conversations as token streams. The templates are written here, not evaluated from a file.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/document.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {

enum class ChatTemplate : std::uint8_t {
  // The one that the tokenizer's special tokens are made for: resolve_chat_template().
  automatic,
  // Llama 2 Chat: for each question and its answer
  // <s>[INST] question [/INST] answer </s> with white space around question and answer removed. A system message
  // stands at the start of the first question, as <<SYS>>\nmessage\n<</SYS>>\n\n. Questions and answers alternate.
  llama2,
  // Llama 3 Instruct: <|begin_of_text|>, then for each message
  // <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|> with white space around the content removed.
  llama3,
  // ChatML (Qwen and others): for each message <|im_start|>role\ncontent<|im_end|>\n.
  chatml,
};

// "auto" first.
[[nodiscard]] std::vector<std::string> chat_template_names();
[[nodiscard]] std::string_view to_string(ChatTemplate chat_template) noexcept;  // "auto", "llama2", ...
[[nodiscard]] ChatTemplate chat_template_from_string(std::string_view name);    // throws bad_config listing the names
// Whether a name means a Jinja template in a file of its own: it ends in .jinja.
[[nodiscard]] bool is_chat_template_file(std::string_view name) noexcept;

// `chat_template` itself unless it is automatic; then the template whose special tokens the tokenizer has, or automatic
// where it has those of none. Llama 2's <s> and </s> also have other uses: they count where they are ids 1 and 2 and
// the tokenizer has no [INST] token of its own.
[[nodiscard]] ChatTemplate resolve_chat_template(ChatTemplate chat_template, const Tokenizer& tokenizer);

struct ChatMessage {
  std::string role;  // "system", "user", "assistant" or "tool"
  std::string content;
  bool train = true;  // false: nothing of it is a target
};

// Targets are what the assistant is to produce: the content of its messages and the token that ends them
// (</s>, <|eot_id|>, <|im_end|>); with `all`, every token. Its header is encoded apart from its content, as generation
// will see it; text that looks like a special token inside a message stays text. Throws invalid_argument for an unknown
// role, an empty assistant message, a conversation without one or one that the template has no form for, and bad_config
// when the template is still automatic.
[[nodiscard]] std::vector<DocumentPiece> render_chat(ChatTemplate chat_template,
                                                     const std::vector<ChatMessage>& messages, bool all = false);

// What stands in front of the assistant's next answer: the messages so far, the last of them not the assistant's, and
// the header of that answer. Throws as render_chat() does; an answer among the messages is not needed.
[[nodiscard]] std::vector<DocumentPiece> render_chat_prompt(ChatTemplate chat_template,
                                                            const std::vector<ChatMessage>& messages);
// The special token behind an answer; empty for automatic.
[[nodiscard]] std::string end_of_turn(ChatTemplate chat_template);

// The template as Jinja, for model folders: what is rendered with it has the same tokens. Empty for automatic.
[[nodiscard]] std::string_view jinja_text(ChatTemplate chat_template) noexcept;

// The special tokens that the template needs from a tokenizer; none for automatic.
[[nodiscard]] std::vector<std::string> special_tokens(ChatTemplate chat_template);

}  // namespace quench
