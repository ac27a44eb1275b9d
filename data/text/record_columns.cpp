#include "data/text/record_columns.h"

#include <algorithm>
#include <optional>

#include "core/system/check.h"
#include "core/system/nearest_name.h"
#include "data/text/conversation.h"

namespace quench {
namespace {

constexpr std::size_t kMaxListed = 40;
// Unless text.
constexpr std::array<std::string_view, 6> kChatColumns = {"messages",   "conversations", "prompt",
                                                          "completion", "chosen",        "rejected"};
// Else no training text.
constexpr std::array<std::string_view, 7> kNeeded = {"text",   "prompt",   "completion", "messages",
                                                     "chosen", "rejected", "label"};

std::string listed(const std::vector<std::string>& columns) {
  std::string text;
  for (std::size_t i = 0; i < std::min(columns.size(), kMaxListed); ++i)
    text += fmt::format("{}\"{}\"", i > 0 ? ", " : "", columns[i]);
  return columns.size() > kMaxListed ? text + ", ..." : text;
}

// Or null.
Json* find_column(Json& record, std::string_view path) {
  if (Json* value = record.find(path)) return value;
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.', dot + 1)) {
    Json* nested = record.find(path.substr(0, dot));
    if (nested != nullptr && nested->is_object()) return find_column(*nested, path.substr(dot + 1));
  }
  return nullptr;
}

// {"role": [a, b], "content": [c, d]} -> [{"role": a, "content": c}, {"role": b, "content": d}]; nullopt for other
// objects.
std::optional<Json> rows_of_lists(const Json& value) {
  if (!value.is_object() || value.as_object().empty()) return std::nullopt;
  std::size_t rows = 0;
  for (const auto& [key, list] : value.as_object()) {
    if (!list.is_array() || (rows > 0 && list.as_array().size() != rows) || list.as_array().empty())
      return std::nullopt;
    rows = list.as_array().size();
  }
  Json::Array messages(rows, Json::object());
  for (const auto& [key, list] : value.as_object())
    for (std::size_t i = 0; i < rows; ++i)
      if (!list.as_array()[i].is_null()) messages[i].set(key, list.as_array()[i]);
  return messages;
}

bool is_message_list(const Json& value) {
  return value.is_array() && std::ranges::all_of(value.as_array(), [](const Json& item) {
           return item.is_object() && (item.find("role") != nullptr || item.find("from") != nullptr);
         });
}

// "[{", then a key of messages: in JSON, cut off, or as Python prints a list.
bool begins_as_messages(std::string_view text) {
  for (const char bracket : {'[', '{'}) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (!text.starts_with(bracket)) return false;
    text.remove_prefix(1);
  }
  return std::ranges::any_of(std::array{"\"role\":", "'role':", "\"from\":", "'from':"},
                             [&](const char* key) { return text.find(key) != text.npos; });
}

// A cell of a table may hold a list of messages in JSON. Other texts are left if the column `may_be_text`.
void parse_cell(std::string_view column, bool may_be_text, Json& value) {
  if (!value.is_string()) return;
  const std::size_t first = value.as_string().find_first_not_of(" \t\r\n");
  if (first == std::string::npos || value.as_string()[first] != '[') return;
  if (may_be_text && !begins_as_messages(value.as_string())) return;
  try {
    Json list = Json::parse(value.as_string(), {.source = column});
    if (!may_be_text || is_message_list(list)) value = std::move(list);
  } catch (const Error& error) {
    reject_record(fmt::format("field \"{}\" is text that is no list in JSON ({}); write it with json.dumps", column,
                              error.what()));
  }
}

void shape_chat(std::string_view column, const Json& record, Json& value) {
  if (std::optional<Json> rows = rows_of_lists(value)) {
    value = std::move(*rows);
    return;
  }
  // A completion may be text that is a list: after a prompt that is text.
  const Json* prompt = column == "completion" ? record.find("prompt") : nullptr;
  if (prompt != nullptr && !prompt->is_array()) return;
  parse_cell(column, column != "messages" && column != "conversations", value);
}

}  // namespace

void check_columns(const ColumnNames& names, std::string_view option) {
  const std::vector<std::string> known(kColumnTargets.begin(), kColumnTargets.end());
  for (const auto& [target, column] : names) {
    const std::string near = nearest_name(target, known);
    QUENCH_CHECK_AS(ErrorCode::bad_config, std::ranges::find(known, target) != known.end(),
                    "{}: \"{}\" is none of {}{}", option, target, fmt::join(known, ", "),
                    near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
    QUENCH_CHECK_AS(ErrorCode::bad_config, !column.empty(), "{}: no column for \"{}\"", option, target);
  }
  const bool pair = std::ranges::any_of(std::array{"prompt", "completion", "chosen", "rejected", "label"},
                                        [&](const char* target) { return names.contains(target); });
  const int kinds = (names.contains("text") ? 1 : 0) + (pair ? 1 : 0) + (names.contains("messages") ? 1 : 0);
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, kinds <= 1,
      "{}: a record is a text, a prompt with its completion or answers, or messages; name the columns of one of "
      "them",
      option);
}

ColumnNames columns_from_words(const std::vector<std::string>& words, std::string_view option) {
  ColumnNames names;
  for (const std::string& word : words)
    for (std::size_t begin = 0; begin <= word.size();) {
      const std::size_t end = std::min(word.find(',', begin), word.size());
      const std::string pair = word.substr(begin, end - begin);
      const std::size_t equals = pair.find('=');
      QUENCH_CHECK_AS(ErrorCode::bad_config, equals != std::string::npos && equals > 0 && equals + 1 < pair.size(),
                      "{} '{}': expected NAME=COLUMN, with a name of {}", option, word,
                      fmt::join(kColumnTargets, ", "));
      names[pair.substr(0, equals)] = pair.substr(equals + 1);
      begin = end + 1;
    }
  check_columns(names, option);
  return names;
}

RecordColumns::RecordColumns(ColumnNames names, std::string field, const std::vector<std::string>& known,
                             const std::string& file)
    : names_(std::move(names)), field_(std::move(field)), file_(file), columns_(known) {
  check_columns(names_, "data.columns (--columns)");
  if (names_.contains("text")) kind_ = "text";
  if (names_.contains("messages")) kind_ = "messages";
  if (names_.contains("prompt") || names_.contains("completion")) kind_ = "completion";
  for (const auto& [target, column] : names_) {
    if (known.empty()) break;
    const auto has = [&](std::string_view name) { return std::ranges::find(known, name) != known.end(); };
    bool found = has(column);
    for (std::size_t dot = column.find('.'); !found && dot != std::string::npos; dot = column.find('.', dot + 1))
      found = has(std::string_view(column).substr(0, dot));
    QUENCH_CHECK_AS(ErrorCode::bad_config, found, "{}: {}", file_, missing_text(target, column));
  }
}

std::string RecordColumns::missing_text(const std::string& target, const std::string& column) const {
  const std::string near = nearest_name(column, columns_);
  return fmt::format("data.columns (--columns) maps {} to \"{}\", which does not exist; the columns are {}{}", target,
                     column, listed(columns_), near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
}

void RecordColumns::apply(Json& record) {
  any_ = true;
  if (!names_.empty()) {
    for (const auto& [key, value] : record.as_object())
      if (std::ranges::find(columns_, key) == columns_.end() && columns_.size() < kMaxListed) columns_.push_back(key);
    std::vector<std::pair<std::string, Json>> values;
    for (const auto& [target, column] : names_) {
      const Json* value = find_column(record, column);
      if (value == nullptr) {
        if (std::ranges::find(kNeeded, target) != kNeeded.end()) reject_record(missing_text(target, column));
        continue;
      }
      seen_[target] = true;
      values.emplace_back(target == "text" ? field_ : target, *value);
    }
    for (const auto& [target, column] : names_) {
      record.erase(column);
      record.erase(target == "text" ? field_ : target);
    }
    for (auto& [key, value] : values) record.set(key, std::move(value));
  }
  for (const std::string_view column : kChatColumns)
    if (Json* value = record.find(column)) shape_chat(column, record, *value);
}

void RecordColumns::require_seen() const {
  for (const auto& [target, column] : names_)
    QUENCH_CHECK_AS(ErrorCode::bad_config, !any_ || seen_.contains(target), "{}: {}", file_,
                    missing_text(target, column));
}

}  // namespace quench
