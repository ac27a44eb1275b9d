#pragma once
// Conversations as the tokens in front of the assistant's next answer: what generation continues.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/text/conversation.h"
#include "data/text/document_reader.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {

class ChatPrompt {
 public:
  // `chat_template`, `date` and `kwargs` as in the config section data. Keeps a reference to the tokenizer. Throws what
  // set_chat_template and resolve_chats throw.
  ChatPrompt(const Tokenizer& tokenizer, const std::string& chat_template, const std::string& date,
             const Json& kwargs = {});

  // Whether there is a template: without one encode() throws bad_config.
  [[nodiscard]] bool has_template() const noexcept;
  // Text that looks like a special token stays text. Throws what ChatRenderer::prompt and render_chat_prompt throw.
  [[nodiscard]] std::vector<std::int32_t> encode(const Conversation& conversation) const;
  // The token behind an answer, by the template.
  [[nodiscard]] std::optional<std::int32_t> end_of_turn() const;

 private:
  const Tokenizer& tokenizer_;
  ReaderOptions options_;
};

}  // namespace quench
