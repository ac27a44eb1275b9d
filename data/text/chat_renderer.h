#pragma once
// A tokenizer's own chat templates, as Transformers' apply_chat_template.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
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
  // `templates`: default and named; argument "chat_template" selects one, conversations with tools use "tool_use".
  // `date` ("2024-07-26", or empty): for strftime_now. `kwargs` (object or null): overridden by the record's. Throws
  // unsupported for invalid templates, bad_config for invalid dates, and kwargs that are no object or contain messages.
  ChatRenderer(const Tokenizer::ChatTemplateText& templates, const Tokenizer& tokenizer, std::string_view date,
               const Json& kwargs = {});
  ChatRenderer(std::string_view source, const std::string& name, const Tokenizer& tokenizer, std::string_view date);

  // In several pieces if plain text contains special token texts. Those in assistant text are parsed, except turn
  // delimiters; in other messages they stay plain. `notes` (nullable) counts the latter, unused keys, and turns without
  // an end token.
  //
  // Targets of `assistant` and `last`: {% generation %} blocks, as in Transformers; else an assistant turn from the end
  // of the generation prompt through its end token (AssistantTurns). Throws invalid_argument for rejected conversations
  // and, naming the message, for one to train on without a target; unsupported for missing template features.
  [[nodiscard]] std::vector<DocumentPiece> render(const Conversation& conversation, TrainOn train_on,
                                                  RecordNotes* notes = nullptr) const;

  // No targets. Throws as render().
  [[nodiscard]] std::vector<DocumentPiece> prompt(const Conversation& conversation) const;
  // Special token after an answer, or at the next turn's start; empty: none, or the probe conversations are rejected.
  [[nodiscard]] std::string end_of_turn() const;

  // Cache key of the rendering.
  [[nodiscard]] const std::string& identity() const noexcept { return identity_; }

 private:
  struct Source {
    jinja::Template code;
    std::string origin;
    TemplateNames names;
    bool text_arguments = false;   // call arguments as text, not objects
    bool absent_contents = false;  // null contents are left out
    bool null_contents = false;    // null contents stay null next to calls
    bool list_contents = false;    // contents as lists of parts
    bool list_tools = false;       // no tools as an empty list
  };
  struct Call {
    const Conversation& conversation;
    const Source& source;
    std::size_t messages = 0;  // leading
    bool generation_prompt = false;
    TextMarks* marks = nullptr;
  };

  struct PlainAnswer {
    std::string text;
    std::size_t at = 0;               // begin of the content
    std::optional<std::size_t> loop;  // start of the message's loop output around it
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
  [[nodiscard]] std::optional<PlainAnswer> plain_answer(const Call& call, std::size_t message) const;
  [[nodiscard]] std::optional<std::string> answer_header(const Call& call) const;
  [[nodiscard]] std::vector<DocumentPiece> pieces(std::string_view text, const std::vector<jinja::Range>& ranges,
                                                  const std::vector<SpecialTokens::Occurrence>& plain) const;
  void note(const Call& call, std::string_view text, const MarkedPlaces& places, RecordNotes* notes) const;

  std::map<std::string, Source, std::less<>> sources_;  // by name
  std::string identity_;
  Json::Object kwargs_;
  SpecialTokens special_, control_;                                // all; turn delimiters
  std::vector<std::pair<std::string, std::string>> named_tokens_;  // bos_token, eos_token, pad_token
};

}  // namespace quench
