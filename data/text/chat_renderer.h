#pragma once
// A tokenizer's own chat templates, evaluated as Transformers' apply_chat_template does.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/special_tokens.h"
#include "data/chat/template_names.h"
#include "data/chat/text_marks.h"
#include "data/jinja/jinja_template.h"
#include "data/text/conversation.h"
#include "data/text/document.h"
#include "data/text/policies.h"
#include "data/text/record_notes.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {

class ChatRenderer {
 public:
  // `templates`: the default one and those that have names; of several, "tool_use" is taken where there are tools, and
  // the one that the argument "chat_template" names. `date` ("2024-07-26", or empty) is what their strftime_now tells;
  // `kwargs`, an object or null, are their arguments where a record says nothing else. Throws unsupported for a
  // template that cannot be read, bad_config for a date that is none and for kwargs that are no object or hold
  // messages.
  ChatRenderer(const Tokenizer::ChatTemplateText& templates, const Tokenizer& tokenizer, std::string_view date,
               const Json& kwargs = {});
  ChatRenderer(std::string_view source, const std::string& name, const Tokenizer& tokenizer, std::string_view date);

  // The text of the whole conversation in one piece, or in several where plain characters look like a special token.
  //
  // Special tokens in the text of the assistant are these tokens, but for those with which turns begin and end; in all
  // other text of the conversation they are plain characters. `notes`, which may be null, counts the latter, keys that
  // nothing reads, and turns that no token ends.
  //
  // Targets of `assistant` and `last` are what stands between the template's {% generation %} marks, as in
  // Transformers; without marks, a turn of the assistant is a target from where its generation prompt ends to the token
  // that ends it (AssistantTurns). Throws invalid_argument for conversations that the template refuses, and naming the
  // message where a message to be trained on has no target; unsupported for templates that need what there is not.
  [[nodiscard]] std::vector<DocumentPiece> render(const Conversation& conversation, TrainOn train_on,
                                                  RecordNotes* notes = nullptr) const;

  // The text before the assistant's next answer, with the generation prompt: nothing in it is a target. Throws as
  // render() does.
  [[nodiscard]] std::vector<DocumentPiece> prompt(const Conversation& conversation) const;
  // The special token that the template puts after an answer, at its end or at the beginning of the next turn; empty:
  // none, or the template refuses the examples that are rendered to find out.
  [[nodiscard]] std::string end_of_turn() const;

  // All that decides the text, for caches.
  [[nodiscard]] const std::string& identity() const noexcept { return identity_; }

 private:
  struct Source {
    jinja::Template code;
    std::string origin;  // for messages
    TemplateNames names;
    bool text_arguments = false;  // takes the arguments of calls as text, not as objects
    bool list_contents = false;   // takes contents as lists of parts alone
  };
  // Which part of a conversation is rendered, and how.
  struct Call {
    const Conversation& conversation;
    const Source& source;
    std::size_t messages = 0;  // so many of them
    bool generation_prompt = false;
    TextMarks* marks = nullptr;
  };

  void add_source(const std::string& name, std::string_view text, const std::string& origin, std::string_view date);
  void find_control_tokens();
  [[nodiscard]] std::size_t shared_prefix(std::string_view a, std::string_view b) const;
  void choose_forms(Source& source) const;
  [[nodiscard]] const Source& source_for(const Conversation& conversation) const;
  [[nodiscard]] jinja::Map variables(const Call& call) const;
  [[nodiscard]] jinja::Rendered rendered(const Call& call) const;
  [[nodiscard]] std::string text_of(const Json::Array& messages, bool generation_prompt) const;
  [[nodiscard]] MarkedPlaces places(const Call& call, const std::string& text) const;
  [[nodiscard]] std::vector<jinja::Range> targets(const Call& call, const jinja::Rendered& rendered,
                                                  const MarkedPlaces& written, TrainOn train_on,
                                                  RecordNotes* notes) const;
  [[nodiscard]] std::vector<jinja::Range> marked_targets(const Call& call, const jinja::Rendered& rendered,
                                                         const MarkedPlaces& places, TrainOn train_on,
                                                         RecordNotes* notes) const;
  [[nodiscard]] std::vector<jinja::Range> all_targets(const Call& call, const jinja::Rendered& rendered,
                                                      const MarkedPlaces& places) const;
  [[nodiscard]] std::optional<std::size_t> empty_content(const Call& call, std::size_t message,
                                                         std::string_view text) const;
  [[nodiscard]] MarkedPlaces with_empty_contents(const Call& call, MarkedPlaces places, std::string_view text) const;
  [[nodiscard]] std::string generation_prompt(const Call& call, std::string_view text) const;
  [[nodiscard]] std::string answer_header(const Call& call) const;
  [[nodiscard]] std::vector<DocumentPiece> pieces(std::string_view text, const std::vector<jinja::Range>& ranges,
                                                  const std::vector<SpecialTokens::Occurrence>& plain) const;
  void note(const Call& call, std::string_view text, const MarkedPlaces& places, RecordNotes* notes) const;

  std::map<std::string, Source, std::less<>> sources_;  // "default" and others
  std::string identity_;
  Json::Object kwargs_;
  SpecialTokens special_, control_;                                // all; those that begin and end turns
  std::vector<std::pair<std::string, std::string>> named_tokens_;  // bos_token, eos_token, pad_token
};

}  // namespace quench
