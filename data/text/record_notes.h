#pragma once
// Counts for warnings about records.

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "data/chat/template_names.h"
#include "data/text/conversation.h"
#include "data/text/document.h"

namespace quench {

struct RecordNotes {
  using Counts = std::map<std::string, std::uint64_t>;
  Counts record_keys;  // unused: records
  Counts message_keys;
  Counts plain_tokens;                 // texts kept plain: occurrences
  Counts lost_bytes;                   // without a token, as "0x04": occurrences
  Counts unwritten;                    // not rendered, by key: messages
  std::set<std::string> record_texts;  // files read as text by their names that begin with a JSON record
  std::uint64_t left_out = 0;
  std::uint64_t unended = 0;             // conversations without an end token of the last target turn
  std::uint64_t unended_generation = 0;  // the same, by the template's {% generation %} block

  [[nodiscard]] std::vector<std::string> warnings() const;
};

// Unused keys. `names`: of the template; null: built-in, reading only roles and contents.
void note_keys(const Conversation& conversation, const TemplateNames* names, RecordNotes& notes);
// `bytes`: Tokenizer::bytes_without_token().
void note_lost_bytes(std::span<const Document> documents, std::span<const std::uint8_t> bytes, RecordNotes& notes);
// Outside `read`.
void note_keys(const Json& record, std::span<const std::string_view> read, RecordNotes& notes);

}  // namespace quench
