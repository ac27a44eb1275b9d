#include "data/text/record_kind.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/ops/cross_entropy.h"
#include "data/text/conversation.h"

namespace quench {
namespace {

std::vector<DocumentPiece> text_pieces(const Json& record, const ReaderOptions& options) {
  const std::string& text = typed_field(record, options.field, "string").as_string();
  if (text.empty()) return {};
  return {{.text = text}};
}

std::int64_t integer_at(const Json::Array& list, std::size_t i, std::string_view key) {
  if (!list[i].is_integer()) reject_record(fmt::format("{}[{}] is {}, expected integer", key, i, list[i].type_name()));
  return list[i].as_int();
}

// Tokens whose attention mask is 0 are padding and left out. Labels follow the Hugging Face convention: not shifted,
// equal to the id or kIgnoreLabel.
std::vector<DocumentPiece> token_pieces(const Json& record, const ReaderOptions& options) {
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
  const std::int64_t limit = options.vocab_size > 0 ? options.vocab_size : std::numeric_limits<std::int32_t>::max();
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
  if (piece.ids.empty()) return {};
  return {std::move(piece)};
}

// Keeps of several runs of targets the last one.
void keep_last_targets(std::vector<DocumentPiece>& pieces) {
  auto piece = pieces.rbegin();
  while (piece != pieces.rend() && !piece->target) ++piece;
  while (piece != pieces.rend() && piece->target) ++piece;
  for (; piece != pieces.rend(); ++piece) piece->target = false;
}

std::vector<DocumentPiece> conversation_pieces(const Conversation& conversation, const ReaderOptions& options) {
  check_conversation(conversation);
  const bool all = options.train_on == TrainOn::all;
  if (!all) require_assistant_targets(conversation);
  if (options.chat_renderer) return options.chat_renderer->render(conversation, options.train_on);
  std::vector<DocumentPiece> pieces = render_chat(options.chat_template, plain_messages(conversation), all);
  if (options.train_on == TrainOn::last) keep_last_targets(pieces);
  return pieces;
}

template <Conversation (*kConversation)(const Json& record)>
std::vector<DocumentPiece> chat_pieces(const Json& record, const ReaderOptions& options) {
  return conversation_pieces(kConversation(record), options);
}

bool is_chat_pair(const Json& record) {
  return record.at("prompt").is_array() || record.at("completion").is_array();
}

// Lists of messages: one chat, of which the completion's messages are trained on.
std::vector<DocumentPiece> chat_completion_pieces(const Json& record, const ReaderOptions& options) {
  Json::Array messages = typed_field(record, "prompt", "array").as_array();
  const Json::Array& completion = typed_field(record, "completion", "array").as_array();
  if (completion.empty()) reject_record("the completion is empty");
  messages.insert(messages.end(), completion.begin(), completion.end());
  Json chat = record;
  chat.erase("prompt");
  chat.erase("completion");
  chat.set("messages", std::move(messages));
  Conversation conversation = openai_conversation(chat);
  if (options.train_on != TrainOn::all)
    for (std::size_t i = 0; i + completion.size() < conversation.messages.size(); ++i)
      conversation.messages[i].set("train", false);
  return conversation_pieces(conversation, options);
}

// Text: the prompt, and what is to follow it.
std::vector<DocumentPiece> completion_pieces(const Json& record, const ReaderOptions& options) {
  const std::string& prompt = typed_field(record, "prompt", "string").as_string();
  const std::string& completion = typed_field(record, "completion", "string").as_string();
  if (completion.empty()) reject_record("the completion is empty");
  std::vector<DocumentPiece> pieces;
  if (!prompt.empty()) pieces.push_back({.text = prompt, .target = options.train_on == TrainOn::all});
  pieces.push_back({.text = completion, .joined = !prompt.empty()});
  return pieces;
}

// "instruction" and "output"
std::string quoted_keys(const RecordKind& kind, std::string_view field) {
  if (kind.keys.empty()) return fmt::format("\"{}\"", field);
  std::string text;
  for (const std::string_view key : kind.keys) text += fmt::format("{}\"{}\"", text.empty() ? "" : " and ", key);
  return text;
}

const std::vector<const RecordKind*>& kinds_by_rank() {
  static const std::vector<const RecordKind*> kinds = [] {
    std::vector<const RecordKind*> sorted;
    for (const RecordKind& kind : record_kinds()) sorted.push_back(&kind);
    std::ranges::stable_sort(sorted, {}, &RecordKind::rank);
    return sorted;
  }();
  return kinds;
}

}  // namespace

const ChoiceTable<RecordKind>& record_kinds() {
  static const ChoiceTable<RecordKind> table("record kind",
                                             {{.name = "text",
                                               .summary = "plain text",
                                               .form = R"({"text"})",
                                               .keys = {},
                                               .read = text_pieces,
                                               .complete = false,
                                               .has_targets = false,
                                               .rank = 6},
                                              {.name = "tokens",
                                               .summary = "token ids",
                                               .form = R"({"input_ids", "labels"})",
                                               .keys = {"input_ids"},
                                               .read = token_pieces,
                                               .rank = 3},
                                              {.name = "messages",
                                               .summary = "a chat in OpenAI's form",
                                               .form = R"({"messages", "tools"})",
                                               .keys = {"messages"},
                                               .read = chat_pieces<openai_conversation>,
                                               .rank = 1},
                                              {.name = "sharegpt",
                                               .summary = "a chat in ShareGPT's form",
                                               .form = R"({"conversations", "system", "tools"})",
                                               .keys = {"conversations"},
                                               .read = chat_pieces<sharegpt_conversation>,
                                               .rank = 2},
                                              {.name = "alpaca",
                                               .summary = "a question and its answer, as a chat",
                                               .form = R"({"instruction", "input", "output"})",
                                               .keys = {"instruction", "output"},
                                               .read = chat_pieces<alpaca_conversation>,
                                               .rank = 4},
                                              {.name = "chat_completion",
                                               .summary = "a chat, of which the completion is trained on",
                                               .form = R"({"prompt": [...], "completion": [...]})",
                                               .keys = {"prompt", "completion"},
                                               .read = chat_completion_pieces,
                                               .rank = 5,
                                               .fits = is_chat_pair},
                                              {.name = "completion",
                                               .summary = "text, of which the completion is trained on",
                                               .form = R"({"prompt", "completion"})",
                                               .keys = {"prompt", "completion"},
                                               .read = completion_pieces,
                                               .complete = false,
                                               .rank = 5}});
  return table;
}

const RecordKind& record_kind_of(const Json& record, std::string_view field) {
  for (const RecordKind* kind : kinds_by_rank()) {
    const bool known =
        kind->keys.empty()
            ? record.find(field) != nullptr
            : std::ranges::all_of(kind->keys, [&](std::string_view key) { return record.find(key) != nullptr; });
    if (known && (kind->fits == nullptr || kind->fits(record))) return *kind;
  }
  std::vector<std::string> keys{fmt::format("\"{}\"", field)};
  for (const RecordKind* kind : kinds_by_rank())
    if (!kind->keys.empty() && kind->fits == nullptr) keys.push_back(quoted_keys(*kind, field));
  const std::string last = std::move(keys.back());
  keys.pop_back();
  reject_record(fmt::format("no field {}, or {}", fmt::join(keys, ", "), last));
}

}  // namespace quench
