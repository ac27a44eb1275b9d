#pragma once
// Record columns under the names and shapes of record kinds (record_kind.h).

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"

namespace quench {

// Target -> column, or path in nested objects ("data.body").
using ColumnNames = std::map<std::string, std::string>;

inline constexpr std::array<std::string_view, 9> kColumnTargets = {
    "text", "prompt", "completion", "messages", "tools", "system", "chosen", "rejected", "label"};

// Throws bad_config for an unknown key, an empty name, or keys of several record kinds; `option`: config key.
void check_columns(const ColumnNames& names, std::string_view option);
// Throws bad_config for an empty side of "=".
[[nodiscard]] ColumnNames columns_from_words(const std::vector<std::string>& words, std::string_view option);

class RecordColumns {
 public:
  // `field`: key of text records. `known`: columns, or empty. Throws bad_config naming `file` for an unknown column,
  // with the nearest name.
  RecordColumns(ColumnNames names, std::string field, const std::vector<std::string>& known, const std::string& file);

  // By the targets; empty: undetermined.
  [[nodiscard]] std::string_view kind() const noexcept { return kind_; }
  // A chat column that is a struct of lists, or the JSON text of a list of messages, becomes that list. Throws corrupt
  // for a missing text, prompt, completion or messages column, and invalid JSON.
  void apply(Json& record);
  // At the end of the file: throws bad_config for a column absent from every record, with the nearest name.
  void require_seen() const;

 private:
  [[nodiscard]] std::string missing_text(const std::string& target, const std::string& column) const;

  ColumnNames names_;
  std::string field_, file_;
  std::string_view kind_;
  std::map<std::string, bool> seen_;  // by target
  std::vector<std::string> columns_;  // names in the file, or in records so far
  bool any_ = false;
};

}  // namespace quench
