#include "data/text/jsonl_reader.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/json/json.h"
#include "core/ops/cross_entropy.h"
#include "data/text/conversation.h"
#include "data/text/line_reader.h"
#include "data/text/text_input.h"

namespace quench {
namespace {

std::int64_t integer_at(const Json::Array& list, std::size_t i, std::string_view key) {
  if (!list[i].is_integer()) reject_record(fmt::format("{}[{}] is {}, expected integer", key, i, list[i].type_name()));
  return list[i].as_int();
}

// Tokens whose attention mask is 0 are padding and left out. Labels follow the Hugging Face convention: not shifted,
// equal to the id or kIgnoreLabel.
DocumentPiece tokens_of(const Json& record, std::int64_t vocab_size) {
  const Json::Array& ids = typed_field(record, "input_ids", "array").as_array();
  const auto optional_list = [&](const char* key) -> const Json::Array* {
    const Json* value = record.find(key);
    if (value == nullptr || value->is_null()) return nullptr;
    const Json::Array& list = typed_field(record, key, "array").as_array();
    if (list.size() != ids.size()) reject_record(fmt::format("{} {} for {} input_ids", list.size(), key, ids.size()));
    return &list;
  };
  const Json::Array* labels = optional_list("labels");
  const Json::Array* attention = optional_list("attention_mask");
  const std::int64_t limit = vocab_size > 0 ? vocab_size : std::numeric_limits<std::int32_t>::max();
  DocumentPiece piece;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (attention != nullptr && integer_at(*attention, i, "attention_mask") == 0) continue;
    const std::int64_t id = integer_at(ids, i, "input_ids");
    if (id < 0 || id >= limit)
      reject_record(fmt::format("input_ids[{}] is {}, outside the vocabulary of {}", i, id, limit));
    const std::int64_t label = labels != nullptr ? integer_at(*labels, i, "labels") : id;
    if (label != id && label != kIgnoreLabel)
      reject_record(fmt::format("labels[{}] is {}, expected {} (its input id) or {}", i, label, id, kIgnoreLabel));
    piece.ids.push_back(static_cast<std::int32_t>(id));
    piece.targets.push_back(label == kIgnoreLabel ? 0 : 1);
  }
  return piece;
}

// A record's keys tell its kind: the first of these whose keys it has.
struct Signature {
  RecordKind kind;
  std::array<std::string_view, 2> keys;
};
constexpr std::array<Signature, 5> kSignatures = {{{RecordKind::messages, {"messages"}},
                                                   {RecordKind::sharegpt, {"conversations"}},
                                                   {RecordKind::tokens, {"input_ids"}},
                                                   {RecordKind::alpaca, {"instruction", "output"}},
                                                   {RecordKind::completion, {"prompt", "completion"}}}};

RecordKind kind_of(const Json& record, const std::string& text_field) {
  for (const Signature& signature : kSignatures)
    if (std::ranges::all_of(signature.keys,
                            [&](std::string_view key) { return key.empty() || record.find(key) != nullptr; }))
      return signature.kind;
  if (record.find(text_field) != nullptr) return RecordKind::text;
  reject_record(
      fmt::format("no field \"{}\", \"messages\", \"conversations\", \"input_ids\", \"instruction\" and "
                  "\"output\", or \"prompt\" and \"completion\"",
                  text_field));
}

// Keeps of several runs of targets the last one.
void keep_last_targets(std::vector<DocumentPiece>& pieces) {
  auto piece = pieces.rbegin();
  while (piece != pieces.rend() && !piece->target) ++piece;
  while (piece != pieces.rend() && piece->target) ++piece;
  for (; piece != pieces.rend(); ++piece) piece->target = false;
}

std::vector<DocumentPiece> pieces_of(const Conversation& conversation, const ReaderOptions& options) {
  check_conversation(conversation);
  const bool all = options.train_on == TrainOn::all;
  if (!all) require_assistant_targets(conversation);
  if (options.chat_renderer) return options.chat_renderer->render(conversation, options.train_on);
  std::vector<DocumentPiece> pieces = render_chat(options.chat_template, plain_messages(conversation), all);
  if (options.train_on == TrainOn::last) keep_last_targets(pieces);
  return pieces;
}

// Text: the prompt, and what is to follow it.
std::vector<DocumentPiece> completion_pieces(const Json& record, TrainOn train_on) {
  const std::string& prompt = typed_field(record, "prompt", "string").as_string();
  const std::string& completion = typed_field(record, "completion", "string").as_string();
  if (completion.empty()) reject_record("the completion is empty");
  std::vector<DocumentPiece> pieces;
  if (!prompt.empty()) pieces.push_back({.text = prompt, .target = train_on == TrainOn::all});
  pieces.push_back({.text = completion, .joined = !prompt.empty()});
  return pieces;
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
        // Not the record's fault.
        if (error.code() == ErrorCode::bad_config || error.code() == ErrorCode::unsupported)
          throw Error(error.code(), fmt::format("{}: {}", origin, error.what()), error.where());
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
    if (!record.is_object()) reject_record(fmt::format("the record is {}, expected object", record.type_name()));
    const RecordKind kind =
        options_.record == RecordKind::automatic ? kind_of(record, options_.field) : options_.record;
    document.complete = kind != RecordKind::text && kind != RecordKind::completion;
    switch (kind) {
      case RecordKind::text: {
        const std::string& text = typed_field(record, options_.field, "string").as_string();
        if (!text.empty()) document.pieces.push_back({.text = text});
        break;
      }
      case RecordKind::tokens:
        document.pieces.push_back(tokens_of(record, options_.vocab_size));
        if (document.pieces.back().ids.empty()) document.pieces.clear();
        break;
      case RecordKind::messages: document.pieces = pieces_of(openai_conversation(record), options_); break;
      case RecordKind::sharegpt: document.pieces = pieces_of(sharegpt_conversation(record), options_); break;
      case RecordKind::alpaca: document.pieces = pieces_of(alpaca_conversation(record), options_); break;
      case RecordKind::completion: document.pieces = completion_pieces(record, options_.train_on); break;
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
