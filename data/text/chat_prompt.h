#pragma once
// Generation prompt as token ids.

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
  // As in section data. Keeps a reference to the tokenizer. Throws the errors of set_chat_template and resolve_chats.
  ChatPrompt(const Tokenizer& tokenizer, const std::string& chat_template, const std::string& date,
             const Json& kwargs = {});

  // Else encode() throws bad_config.
  [[nodiscard]] bool has_template() const noexcept;
  // Special token texts stay plain. Throws the errors of ChatRenderer::prompt and render_chat_prompt.
  [[nodiscard]] std::vector<std::int32_t> encode(const Conversation& conversation) const;
  [[nodiscard]] std::optional<std::int32_t> end_of_turn() const;

 private:
  const Tokenizer& tokenizer_;
  ReaderOptions options_;
};

}  // namespace quench
