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

}  // namespace quench
