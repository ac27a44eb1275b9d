#include "data/text/jsonl_reader.h"

#include <limits>

#include "core/json/json.h"
#include "core/ops/cross_entropy.h"
#include "data/text/line_reader.h"
#include "data/text/text_input.h"

namespace quench {
namespace {

// A reason for which one record cannot be used.
[[noreturn]] void reject(const std::string& reason) {
  QUENCH_FAIL(ErrorCode::corrupt, "{}", reason);
}

const Json& field(const Json& record, std::string_view key, std::string_view type) {
  const Json* value = record.find(key);
  if (value == nullptr) reject(fmt::format("no field \"{}\"", key));
  const bool matches = (type == "string" && value->is_string()) || (type == "array" && value->is_array());
  if (!matches) reject(fmt::format("field \"{}\" is {}, expected {}", key, value->type_name(), type));
  return *value;
}

// OpenAI messages have a string or a list of {"type": "text", "text": "..."} parts.
std::string content_of(const Json& message, std::string_view key) {
  const Json* content = message.find(key);
  if (content == nullptr || !content->is_array()) return field(message, key, "string").as_string();
  std::string text;
  for (const Json& part : content->as_array()) {
    if (!part.is_object() || field(part, "type", "string").as_string() != "text")
      reject("a content part is not of type text");
    text += field(part, "text", "string").as_string();
  }
  return text;
}

std::vector<ChatMessage> messages_of(const Json& record, bool sharegpt) {
  std::vector<ChatMessage> messages;
  const Json::Array& list = field(record, sharegpt ? "conversations" : "messages", "array").as_array();
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) reject(fmt::format("message {} is {}, expected object", i, list[i].type_name()));
    try {
      std::string role = field(list[i], sharegpt ? "from" : "role", "string").as_string();
      if (sharegpt && role == "human") role = "user";
      if (sharegpt && role == "gpt") role = "assistant";
      messages.push_back({std::move(role), content_of(list[i], sharegpt ? "value" : "content")});
    } catch (const Error& error) {
      reject(fmt::format("message {}: {}", i, error.what()));
    }
  }
  return messages;
}

std::int64_t integer_at(const Json::Array& list, std::size_t i, std::string_view key) {
  if (!list[i].is_integer()) reject(fmt::format("{}[{}] is {}, expected integer", key, i, list[i].type_name()));
  return list[i].as_int();
}

// Tokens whose attention mask is 0 are padding and left out. Labels follow the Hugging Face convention: not shifted,
// equal to the id or kIgnoreLabel.
DocumentPiece tokens_of(const Json& record, std::int64_t vocab_size) {
  const Json::Array& ids = field(record, "input_ids", "array").as_array();
  const auto optional_list = [&](const char* key) -> const Json::Array* {
    const Json* value = record.find(key);
    if (value == nullptr || value->is_null()) return nullptr;
    const Json::Array& list = field(record, key, "array").as_array();
    if (list.size() != ids.size()) reject(fmt::format("{} {} for {} input_ids", list.size(), key, ids.size()));
    return &list;
  };
  const Json::Array* labels = optional_list("labels");
  const Json::Array* attention = optional_list("attention_mask");
  const std::int64_t limit = vocab_size > 0 ? vocab_size : std::numeric_limits<std::int32_t>::max();
  DocumentPiece piece;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (attention != nullptr && integer_at(*attention, i, "attention_mask") == 0) continue;
    const std::int64_t id = integer_at(ids, i, "input_ids");
    if (id < 0 || id >= limit) reject(fmt::format("input_ids[{}] is {}, outside the vocabulary of {}", i, id, limit));
    const std::int64_t label = labels != nullptr ? integer_at(*labels, i, "labels") : id;
    if (label != id && label != kIgnoreLabel)
      reject(fmt::format("labels[{}] is {}, expected {} (its input id) or {}", i, label, id, kIgnoreLabel));
    piece.ids.push_back(static_cast<std::int32_t>(id));
    piece.targets.push_back(label == kIgnoreLabel ? 0 : 1);
  }
  return piece;
}

RecordKind kind_of(const Json& record, const std::string& text_field) {
  if (record.find("messages") != nullptr) return RecordKind::messages;
  if (record.find("conversations") != nullptr) return RecordKind::sharegpt;
  if (record.find("input_ids") != nullptr) return RecordKind::tokens;
  if (record.find(text_field) != nullptr) return RecordKind::text;
  reject(fmt::format("no field \"{}\", \"messages\", \"conversations\" or \"input_ids\"", text_field));
}

class JsonlReader final : public DocumentReader {
 public:
  JsonlReader(const std::filesystem::path& path, const ReaderOptions& options)
      : input_(path), lines_(input_, options.max_document_bytes), options_(options) {
    if (options_.record != RecordKind::automatic) return;
    has_first_ = next(first_);
    QUENCH_CHECK_AS(ErrorCode::corrupt, options_.record != RecordKind::automatic, "{}: no record that can be used",
                    path.string());
  }

  bool next(Document& document) override {
    if (has_first_) {
      document = std::move(first_);
      has_first_ = false;
      return true;
    }
    while (lines_.next()) {
      const std::string origin = fmt::format("{}:{}", input_.name(), lines_.number());
      if (lines_.too_long()) {
        bad_record(options_.on_bad_record, origin,
                   fmt::format("a line of more than {} bytes", options_.max_document_bytes));
        continue;
      }
      if (lines_.text().find_first_not_of(" \t\r") == std::string::npos) continue;
      document = Document{};
      document.origin = origin;
      try {
        read_record(origin, document);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::bad_config) throw;  // not the record's fault
        bad_record(options_.on_bad_record, origin, reason_of(error, origin));
        continue;
      }
      if (document.pieces.empty()) {
        ++report_.empty;
        continue;
      }
      ++report_.documents;
      return true;
    }
    return false;
  }

  [[nodiscard]] std::uint64_t consumed() const override { return lines_.consumed(); }
  [[nodiscard]] bool has_targets() const override { return options_.record != RecordKind::text; }

 private:
  void read_record(const std::string& origin, Document& document) {
    const Json record = Json::parse(lines_.text(), {.max_bytes = lines_.text().size(), .source = origin});
    if (!record.is_object()) reject(fmt::format("the record is {}, expected object", record.type_name()));
    const RecordKind kind =
        options_.record == RecordKind::automatic ? kind_of(record, options_.field) : options_.record;
    document.complete = kind != RecordKind::text;
    switch (kind) {
      case RecordKind::text: {
        const std::string& text = field(record, options_.field, "string").as_string();
        if (!text.empty()) document.pieces.push_back({.text = text});
        break;
      }
      case RecordKind::tokens:
        document.pieces.push_back(tokens_of(record, options_.vocab_size));
        if (document.pieces.back().ids.empty()) document.pieces.clear();
        break;
      case RecordKind::messages:
      case RecordKind::sharegpt:
        document.pieces = render_chat(options_.chat_template, messages_of(record, kind == RecordKind::sharegpt));
        break;
      case RecordKind::automatic: break;
    }
    options_.record = kind;
  }

  // The JSON parser says "<origin>:1:<column>: what", as if the record were a file of its own.
  static std::string reason_of(const Error& error, const std::string& origin) {
    std::string text = error.what();
    const std::string prefix = origin + ":1:";
    return text.starts_with(prefix) ? "column " + text.substr(prefix.size()) : text;
  }

  TextInput input_;
  LineReader lines_;
  ReaderOptions options_;
  Document first_;
  bool has_first_ = false;
};

}  // namespace

std::unique_ptr<DocumentReader> open_jsonl_reader(const std::filesystem::path& path, const ReaderOptions& options) {
  return std::make_unique<JsonlReader>(path, options);
}

}  // namespace quench
