#pragma once
// Counters for warnings about records: unused keys, plain special tokens, unterminated turns.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/chat/template_names.h"
#include "data/text/conversation.h"

namespace quench {

struct RecordNotes {
  using Counts = std::map<std::string, std::uint64_t>;
  Counts record_keys;  // unused record keys: number of records
  Counts message_keys;
  Counts plain_tokens;  // special token texts kept as plain text: occurrences
  Counts unwritten;     // texts not rendered by the chat template, by key: messages
  std::uint64_t left_out = 0;
  std::uint64_t unended = 0;             // conversations whose last target turn has no end token
  std::uint64_t unended_generation = 0;  // the same, excluded by the template's {% generation %} block

  [[nodiscard]] std::vector<std::string> warnings() const;
};

// Counts unused keys of a conversation. `names`: of its template; null: a built-in template, which reads only roles and
// contents.
void note_keys(const Conversation& conversation, const TemplateNames* names, RecordNotes& notes);
// Counts the keys of a record outside `read`.
void note_keys(const Json& record, std::span<const std::string_view> read, RecordNotes& notes);

}  // namespace quench
