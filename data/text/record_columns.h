#pragma once
// Records whose columns have other names or shapes than those that the kinds of records have (data/text/record_kind.h).

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"

namespace quench {

// What a record is read as -> the name of its column, or a path of names in nested objects, as "data.body".
using ColumnNames = std::map<std::string, std::string>;

// The keys of ColumnNames.
inline constexpr std::array<std::string_view, 6> kColumnTargets = {"text",     "prompt", "completion",
                                                                   "messages", "tools",  "system"};

// Throws bad_config for an unknown key, an empty name, and for keys of more than one kind of record; `option` names
// where they stand: "data.columns".
void check_columns(const ColumnNames& names, std::string_view option);
// {"text": "body"} of "text=body". Throws bad_config for anything without a name on either side of "=".
[[nodiscard]] ColumnNames columns_from_words(const std::vector<std::string>& words, std::string_view option);

// Gives the columns of a file's records the names that they are read by.
class RecordColumns {
 public:
  // `field` is the key that a text has. `known` are the columns of the file, or empty. Throws bad_config naming `file`
  // for a name that is none of those, with the nearest.
  RecordColumns(ColumnNames names, std::string field, const std::vector<std::string>& known, const std::string& file);

  // The kind of record that the names make, by name; empty where they leave it open.
  [[nodiscard]] std::string_view kind() const noexcept { return kind_; }
  // Renames the columns of an object. A chat column that is an object of lists, one list for each key of a message,
  // becomes the list of messages; one that is the JSON text of a list becomes that list. Throws corrupt for a record
  // without the column of its text, prompt, completion or messages, and for text that is no JSON.
  void apply(Json& record);
  // Throws bad_config for a name that no record had, with the nearest; to be called at the end of the file.
  void require_seen() const;

 private:
  [[nodiscard]] std::string missing_text(const std::string& target, const std::string& column) const;

  ColumnNames names_;
  std::string field_, file_;
  std::string_view kind_;
  std::map<std::string, bool> seen_;  // by target
  std::vector<std::string> columns_;  // of the file, or of the records so far
  bool any_ = false;                  // a record has been seen
};

}  // namespace quench
