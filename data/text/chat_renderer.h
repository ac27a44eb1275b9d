#pragma once
// A tokenizer's own chat template, evaluated as Transformers' apply_chat_template does.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/jinja/jinja_template.h"
#include "data/text/conversation.h"
#include "data/text/document.h"
#include "data/text/policies.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {

class ChatRenderer {
 public:
  // `source` is the template's text, `name` what errors call it, `date` ("2024-07-26", or empty) what its strftime_now
  // tells. Throws unsupported for a template that cannot be read, bad_config for a date that is none.
  ChatRenderer(std::string_view source, const std::string& name, const Tokenizer& tokenizer, std::string_view date);

  // The text of the whole conversation, without a generation prompt, in one piece, or in several where a message holds
  // text that looks like a special token, which stays text.
  //
  // Targets of `assistant` and `last` are what stands between the template's {% generation %} marks, as in
  // Transformers. A template without marks writes each message in a loop over them: a target is then what that loop
  // writes for an assistant's message, without what the generation prompt begins with and without white space behind
  // the last special token. Throws invalid_argument for conversations that the template refuses, unsupported for
  // templates that need what there is not, among it those that write messages in another way and have no marks.
  [[nodiscard]] std::vector<DocumentPiece> render(const Conversation& conversation, TrainOn train_on) const;

  // The text in front of the assistant's next answer, with the generation prompt: nothing in it is a target. Throws as
  // render() does.
  [[nodiscard]] std::vector<DocumentPiece> prompt(const Conversation& conversation) const;
  // The special token that the template puts behind an answer; empty: none, or the template refuses the example that
  // is rendered to find out.
  [[nodiscard]] std::string end_of_turn() const;

  // All that decides the text, for caches.
  [[nodiscard]] const std::string& identity() const noexcept { return identity_; }

 private:
  struct Text;  // rendered, with the places of special tokens

  [[nodiscard]] jinja::Map variables(const Conversation& conversation, bool generation_prompt,
                                     std::string_view guard) const;
  [[nodiscard]] std::vector<jinja::Range> answers(const Conversation& conversation, const jinja::Rendered& rendered,
                                                  std::string_view guard) const;
  // The ranges without what the template writes for messages that are not trained on; of the assistant, or of all.
  [[nodiscard]] std::vector<jinja::Range> trained(std::vector<jinja::Range> ranges, const Conversation& conversation,
                                                  const jinja::Rendered& rendered, bool all) const;
  [[nodiscard]] jinja::Range without_header(jinja::Range turn, std::string_view text, std::string_view prompt,
                                            std::string_view content) const;
  [[nodiscard]] std::vector<DocumentPiece> pieces(std::string text, std::vector<jinja::Range> ranges,
                                                  std::string_view guard) const;
  [[nodiscard]] std::string guarded(std::string_view text, std::string_view guard) const;
  [[nodiscard]] jinja::Value guarded_value(const Json& json, std::string_view guard) const;
  // The special token that begins at `at`, the longest of several; empty: none.
  [[nodiscard]] std::string_view special_at(std::string_view text, std::size_t at) const;

  jinja::Template template_;
  std::string identity_;
  std::vector<std::string> special_tokens_;
  std::string special_starts_;                                     // the bytes with which they begin
  std::vector<std::pair<std::string, std::string>> named_tokens_;  // bos_token, eos_token, pad_token
};

}  // namespace quench
