#pragma once
// Built-in chat templates, without Jinja.

#include <string>
#include <string_view>
#include <vector>

#include "core/system/choice_table.h"
#include "data/text/document.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {

// Message of a conversation; `train`: an assistant's content is a loss target.
struct ChatMessage {
  std::string role;  // "system", "user", "assistant" or "tool"
  std::string content;
  bool train = true;
};

// Null means "auto": by the tokenizer's special tokens (fitting_chat_template).
struct ChatTemplate {
  std::string name;
  std::vector<std::string> special_tokens;  // required
  // Targets: answers and their end tokens; with `all` every token.
  void (*render)(const std::vector<ChatMessage>& messages, bool all, std::vector<DocumentPiece>& pieces);
  // Generation prompt.
  void (*begin_answer)(std::vector<DocumentPiece>& pieces, bool target);
  std::string end_of_turn;  // special token
  std::string jinja;        // equivalent for model folders: same tokens
  bool trims = true;        // strips contents
  // For special tokens with other uses; nullable.
  bool (*owns_tokens)(const Tokenizer& tokenizer) = nullptr;
};

// In order of trial.
[[nodiscard]] const ChoiceTable<ChatTemplate>& chat_templates();
// "auto" and the table's names.
[[nodiscard]] std::vector<std::string> chat_template_names();
// Null for "auto". Throws bad_config listing the names.
[[nodiscard]] const ChatTemplate* chat_template_from_string(std::string_view name);
// *.jinja
[[nodiscard]] bool is_chat_template_file(std::string_view name) noexcept;

// By the tokenizer's special tokens; or null. Llama 2's <s> and </s> count only with ids 1 and 2 and no [INST] token.
[[nodiscard]] const ChatTemplate* fitting_chat_template(const Tokenizer& tokenizer);

// Assistant text without the template's own tokens; never for Llama 2, which concatenates texts.
[[nodiscard]] bool reads_special_tokens(const ChatTemplate* chat_template, std::string_view role,
                                        std::string_view text);

// Targets: assistant contents and end tokens (</s>, <|eot_id|>, <|im_end|>); with `all`, every token. Headers are
// encoded separately, as in generation. Special token texts stay plain, unless reads_special_tokens(). Throws
// invalid_argument for an unknown role, an empty or no assistant message, or an inexpressible conversation; bad_config
// without a template.
[[nodiscard]] std::vector<DocumentPiece> render_chat(const ChatTemplate* chat_template,
                                                     const std::vector<ChatMessage>& messages, bool all = false);

// Messages, the last not the assistant's, and the answer's header. Throws as render_chat(), but needs no assistant
// message.
[[nodiscard]] std::vector<DocumentPiece> render_chat_prompt(const ChatTemplate* chat_template,
                                                            const std::vector<ChatMessage>& messages);

}  // namespace quench
