#pragma once
// Built-in chat templates: conversations as pieces, without a Jinja evaluation.

#include <string>
#include <string_view>
#include <vector>

#include "core/system/choice_table.h"
#include "data/text/document.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant" or "tool"
  std::string content;
  bool train = true;  // false: not a target
};

// Built-in template. A null pointer means "auto": resolved by the tokenizer's special tokens (fitting_chat_template).
struct ChatTemplate {
  std::string name;
  std::vector<std::string> special_tokens;  // required from the tokenizer
  // Appends the pieces of the messages. Targets: answers and their end tokens; with `all` every token.
  void (*render)(const std::vector<ChatMessage>& messages, bool all, std::vector<DocumentPiece>& pieces);
  // Appends the generation prompt, as target or not.
  void (*begin_answer)(std::vector<DocumentPiece>& pieces, bool target);
  std::string end_of_turn;  // special token after an answer
  std::string jinja;        // equivalent Jinja template for model folders: same tokens
  bool trims = true;        // white space is stripped from contents
  // Additional check for special tokens with other uses; nullable.
  bool (*owns_tokens)(const Tokenizer& tokenizer) = nullptr;
};

// In the order of trial by "auto".
[[nodiscard]] const ChoiceTable<ChatTemplate>& chat_templates();
[[nodiscard]] std::vector<std::string> chat_template_names();
// Null for "auto". Throws bad_config listing the names.
[[nodiscard]] const ChatTemplate* chat_template_from_string(std::string_view name);
// True for a path of a Jinja template: *.jinja.
[[nodiscard]] bool is_chat_template_file(std::string_view name) noexcept;

// Template whose special tokens the tokenizer has; null: none. Llama 2's <s> and </s> count only with ids 1 and 2 and
// no [INST] token.
[[nodiscard]] const ChatTemplate* fitting_chat_template(const Tokenizer& tokenizer);

// True if special tokens in the message text are parsed: assistant text without the template's own tokens. Never for
// Llama 2, which concatenates texts.
[[nodiscard]] bool reads_special_tokens(const ChatTemplate* chat_template, std::string_view role,
                                        std::string_view text);

// Targets: assistant contents and their end tokens (</s>, <|eot_id|>, <|im_end|>); with `all`, every token. Headers are
// encoded separately, as in generation. Special token texts stay plain, unless reads_special_tokens(). Throws
// invalid_argument for an unknown role, an empty or no assistant message, or a conversation that the template cannot
// express; bad_config without a template.
[[nodiscard]] std::vector<DocumentPiece> render_chat(const ChatTemplate* chat_template,
                                                     const std::vector<ChatMessage>& messages, bool all = false);

// Generation prompt: the messages, the last not the assistant's, and the header of the answer. Throws as render_chat(),
// but needs no assistant message.
[[nodiscard]] std::vector<DocumentPiece> render_chat_prompt(const ChatTemplate* chat_template,
                                                            const std::vector<ChatMessage>& messages);

}  // namespace quench
