#pragma once
// Counts of what a user should know about records that are read: keys without effect, text that stays plain, turns
// without an end.

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
  Counts record_keys;                    // keys of records that nothing reads: how many records hold them
  Counts message_keys;                   // of messages
  Counts plain_tokens;                   // special tokens in texts where they are plain characters: occurrences
  Counts unwritten;                      // texts that the chat template leaves out, by their key: messages
  std::uint64_t left_out = 0;            // records that say not to train on them
  std::uint64_t unended = 0;             // conversations whose last trained turn no token ends
  std::uint64_t unended_generation = 0;  // the same where the template's {% generation %} block leaves that token out

  // One warning for each that has been counted.
  [[nodiscard]] std::vector<std::string> warnings() const;
};

// Counts the keys of a conversation that have no effect. `names`: those of its template; null: a written template,
// which reads roles and contents alone.
void note_keys(const Conversation& conversation, const TemplateNames* names, RecordNotes& notes);
// Counts the keys of a record that are not among `read`.
void note_keys(const Json& record, std::span<const std::string_view> read, RecordNotes& notes);

}  // namespace quench
