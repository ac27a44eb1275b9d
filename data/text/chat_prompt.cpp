#include "data/text/chat_prompt.h"

#include <array>

#include "core/system/check.h"
#include "data/text/document_encoder.h"

namespace quench {

ChatPrompt::ChatPrompt(const Tokenizer& tokenizer, const std::string& chat_template, const std::string& date,
                       const Json& kwargs)
    : tokenizer_(tokenizer) {
  set_chat_template(options_, chat_template);
  options_.chat_date = date;
  options_.chat_template_kwargs = kwargs;
  resolve_chats(options_, tokenizer);
}

bool ChatPrompt::has_template() const noexcept {
  return options_.chat_renderer != nullptr || options_.chat_template != nullptr;
}

std::vector<std::int32_t> ChatPrompt::encode(const Conversation& conversation) const {
  Document document;
  document.complete = true;
  document.pieces = options_.chat_renderer != nullptr
                        ? options_.chat_renderer->prompt(conversation)
                        : render_chat_prompt(options_.chat_template, plain_messages(conversation));
  const DocumentEncoder encoder(tokenizer_, {.eos = EosPolicy::none});
  return encoder.encode(std::array{std::move(document)})[0].ids;
}

std::optional<std::int32_t> ChatPrompt::end_of_turn() const {
  if (!has_template()) return std::nullopt;
  const std::string token =
      options_.chat_renderer != nullptr ? options_.chat_renderer->end_of_turn() : options_.chat_template->end_of_turn;
  if (token.empty()) return std::nullopt;
  return tokenizer_.find_token(token);
}

}  // namespace quench
