#pragma once
// What records hold, as a table: each kind makes a record's document.

#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "core/system/choice_table.h"
#include "data/text/document_reader.h"

namespace quench {

struct RecordKind {
  std::string_view name;
  std::string_view summary;  // what a record is
  std::string_view form;     // its keys: "{\"prompt\", \"completion\"}"
  // The keys by which a record is known to be of the kind; none: the key that ReaderOptions::field names.
  std::vector<std::string_view> keys;
  // The pieces of a record's document; none: the record is empty. Throws Error(corrupt) and invalid_argument with the
  // reason for a record that cannot be used.
  std::vector<DocumentPiece> (*read)(const Json& record, const ReaderOptions& options);
  bool complete = true;     // as Document::complete
  bool has_targets = true;  // some tokens of the documents may be no targets
  int rank = 0;             // of the kinds whose keys a record has, it is of the one with the smallest rank
  // Further condition on a record that has the keys; null: none.
  bool (*fits)(const Json& record) = nullptr;
};

[[nodiscard]] const ChoiceTable<RecordKind>& record_kinds();
// The kind of a record by its keys; `field` as in ReaderOptions. Throws Error(corrupt) naming the keys of all kinds.
[[nodiscard]] const RecordKind& record_kind_of(const Json& record, std::string_view field);

}  // namespace quench
