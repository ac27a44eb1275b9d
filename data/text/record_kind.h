#pragma once
// Record to document, by kind.

#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "core/system/choice_table.h"
#include "data/text/document_reader.h"

namespace quench {

struct RecordKind {
  std::string_view name;
  std::string_view summary;
  std::string_view form;  // "{\"prompt\", \"completion\"}"
  // None: ReaderOptions::field.
  std::vector<std::string_view> keys;
  // None: empty record. Throws Error(corrupt) and invalid_argument with the reason.
  std::vector<DocumentPiece> (*read)(const Json& record, const ReaderOptions& options);
  bool complete = true;     // Document::complete
  bool has_targets = true;  // tokens may be masked
  int rank = 0;             // among matching kinds, smallest first
  // Besides the keys; nullable.
  bool (*fits)(const Json& record) = nullptr;
};

// In documentation order.
[[nodiscard]] const ChoiceTable<RecordKind>& record_kinds();
// By keys; `field` as in ReaderOptions. Throws Error(corrupt) listing the keys of all kinds.
[[nodiscard]] const RecordKind& record_kind_of(const Json& record, std::string_view field);

// Records of answers, as TRL reads them.
//
// Pairs: {"prompt", "chosen", "rejected"}, each a text or a list of messages. Without "prompt", or with a text for one
// next to messages, the prompt is the common beginning of both answers: whole messages, or characters without a final
// space. Labels: {"prompt", "completion", "label"}, label true or 1: desirable; a pair counts as two labels.
//
// Prompts: {"prompt", ...}, a text, or a list of messages that the chat template renders with the header of an answer;
// or "messages" or "conversations". Other fields are kept.
//
// Documents whose targets are the answer; with prompts, the other fields as one JSON object. Pairs: chosen, marked 1,
// then rejected, marked 0. Labels: the mark is the label. None for a record left out by its flag. Throws Error(corrupt)
// for equal or empty answers and for a record of another kind.
[[nodiscard]] std::vector<Document> answer_documents(const Json& record, const ReaderOptions& options);

}  // namespace quench
