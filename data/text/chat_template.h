#pragma once
// Conversations as token streams. The templates are written here, not evaluated from a file.

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
  bool train = true;  // false: nothing of it is a target
};

// A template. Where one is asked for, null stands for "auto": the one that the tokenizer's special tokens are made for,
// once the tokenizer is known (fitting_chat_template).
struct ChatTemplate {
  std::string name;
  std::vector<std::string> special_tokens;  // that it needs from a tokenizer
  // Adds the messages' pieces: targets are answers and their ends, with `all` every token.
  void (*render)(const std::vector<ChatMessage>& messages, bool all, std::vector<DocumentPiece>& pieces);
  // Adds the header of an answer; targets or not.
  void (*begin_answer)(std::vector<DocumentPiece>& pieces, bool target);
  std::string end_of_turn;  // the special token after an answer
  std::string jinja;        // the same for model folders: what is rendered with it has the same tokens
  bool trims = true;        // contents lose the white space at their ends
  // For special tokens that have other uses too: whether they are the template's. Null: they are.
  bool (*owns_tokens)(const Tokenizer& tokenizer) = nullptr;
};

// In the order in which "auto" tries them.
[[nodiscard]] const ChoiceTable<ChatTemplate>& chat_templates();
// "auto" first.
[[nodiscard]] std::vector<std::string> chat_template_names();
// Null for "auto". Throws bad_config listing the names.
[[nodiscard]] const ChatTemplate* chat_template_from_string(std::string_view name);
// Whether a name means a Jinja template in a file of its own: it ends in .jinja.
[[nodiscard]] bool is_chat_template_file(std::string_view name) noexcept;

// The template whose special tokens the tokenizer has; null where it has those of none. Llama 2's <s> and </s> also
// have other uses: they count where they are ids 1 and 2 and the tokenizer has no [INST] token of its own.
[[nodiscard]] const ChatTemplate* fitting_chat_template(const Tokenizer& tokenizer);

// Whether special tokens in a message's text become these tokens: in the assistant's, unless it holds tokens of the
// template itself. Llama 2's template joins texts and has plain characters alone.
[[nodiscard]] bool reads_special_tokens(const ChatTemplate* chat_template, std::string_view role,
                                        std::string_view text);

// Targets are what the assistant is to produce: the content of its messages and the token that ends them
// (</s>, <|eot_id|>, <|im_end|>); with `all`, every token. Its header is encoded apart from its content, as generation
// will see it; text that looks like a special token inside a message stays text, unless reads_special_tokens(). Throws
// invalid_argument for an unknown role, an empty assistant message, a conversation without one or one that the template
// has no form for, and bad_config without a template.
[[nodiscard]] std::vector<DocumentPiece> render_chat(const ChatTemplate* chat_template,
                                                     const std::vector<ChatMessage>& messages, bool all = false);

// Text before the assistant's next answer: the messages so far, the last of them not the assistant's, and
// the header of that answer. Throws as render_chat() does; an answer among the messages is not needed.
[[nodiscard]] std::vector<DocumentPiece> render_chat_prompt(const ChatTemplate* chat_template,
                                                            const std::vector<ChatMessage>& messages);

}  // namespace quench
