#pragma once
// Registry of record kinds; each converts a record to a document.

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
  std::string_view form;  // its keys: "{\"prompt\", \"completion\"}"
  // Identifying keys; none: the key ReaderOptions::field.
  std::vector<std::string_view> keys;
  // Pieces of the record's document; none: empty record. Throws Error(corrupt) and invalid_argument with the reason for
  // bad records.
  std::vector<DocumentPiece> (*read)(const Json& record, const ReaderOptions& options);
  bool complete = true;     // Document::complete
  bool has_targets = true;  // some tokens may be masked from the loss
  int rank = 0;             // precedence among matching kinds, smallest first
  // Additional condition on a record with the keys; null: none.
  bool (*fits)(const Json& record) = nullptr;
};

[[nodiscard]] const ChoiceTable<RecordKind>& record_kinds();
// Kind of a record by its keys; `field` as in ReaderOptions. Throws Error(corrupt) listing the keys of all kinds.
[[nodiscard]] const RecordKind& record_kind_of(const Json& record, std::string_view field);

}  // namespace quench
