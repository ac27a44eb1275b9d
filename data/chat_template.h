#pragma once
// Conversations as token streams. The templates are written here, not evaluated from a file.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/document.h"

namespace quench {

enum class ChatTemplate : std::uint8_t {
  // Llama 3 Instruct: <|begin_of_text|>, then for each message
  // <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|> with white space around the content removed.
  llama3,
  // ChatML (Qwen and others): for each message <|im_start|>role\ncontent<|im_end|>\n.
  chatml,
};

[[nodiscard]] std::string_view to_string(ChatTemplate chat_template) noexcept;  // "llama3", "chatml"
[[nodiscard]] ChatTemplate chat_template_from_string(std::string_view name);    // throws bad_config

struct ChatMessage {
  std::string role;  // "system", "user", "assistant" or "tool"
  std::string content;
};

// Only what the assistant is to produce can be a target: the content of its messages and the token that ends them
// (<|eot_id|>, <|im_end|>). Its header is encoded apart from its content, as generation will see it; text that looks
// like a special token inside a message stays text. Throws invalid_argument for an unknown role, an empty assistant
// message, or a conversation without one.
[[nodiscard]] std::vector<DocumentPiece> render_chat(ChatTemplate chat_template,
                                                     const std::vector<ChatMessage>& messages);

// The special tokens that the template needs from a tokenizer.
[[nodiscard]] std::vector<std::string> special_tokens(ChatTemplate chat_template);

}  // namespace quench
