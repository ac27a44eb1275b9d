#include "data/text/record_kind.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "core/ops/loss/cross_entropy.h"
#include "data/text/conversation.h"

namespace quench {
namespace {

// Counted.
bool is_left_out(const Json& record, const ReaderOptions& options) {
  if (record_flag(record).value_or(true)) return false;
  if (options.notes) ++options.notes->left_out;
  return true;
}

// Without messages; outside `read` and flags.
void note_keys_of(const Json& record, std::span<const std::string_view> read, const ReaderOptions& options) {
  if (!options.notes) return;
  std::vector<std::string_view> names(read.begin(), read.end());
  for (const Json::Member& member : record.as_object())
    if (is_record_flag(member)) names.push_back(member.first);
  note_keys(record, names, *options.notes);
}

std::vector<DocumentPiece> text_pieces(const Json& record, const ReaderOptions& options) {
  const std::string& text = typed_field(record, options.field, "string").as_string();
  if (is_left_out(record, options)) return {};
  note_keys_of(record, std::array<std::string_view, 1>{options.field}, options);
  if (text.empty()) return {};
  return {{.text = text, .markup = options.special_text != SpecialText::text}};
}

std::int64_t integer_at(const Json::Array& list, std::size_t i, std::string_view key) {
  if (!list[i].is_integer()) reject_record(fmt::format("{}[{}] is {}, expected integer", key, i, list[i].type_name()));
  return list[i].as_int();
}

// Attention mask 0: padding, dropped. Labels: unshifted, the id or kIgnoreLabel (Hugging Face).
std::vector<DocumentPiece> token_pieces(const Json& record, const ReaderOptions& options) {
  const Json::Array& ids = typed_field(record, "input_ids", "array").as_array();
  if (is_left_out(record, options)) return {};
  note_keys_of(record, std::array<std::string_view, 3>{"input_ids", "labels", "attention_mask"}, options);
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

// Keeps only the last run of targets.
void keep_last_targets(std::vector<DocumentPiece>& pieces) {
  auto piece = pieces.rbegin();
  while (piece != pieces.rend() && !piece->target) ++piece;
  while (piece != pieces.rend() && piece->target) ++piece;
  for (; piece != pieces.rend(); ++piece) piece->target = false;
}

// Built-in template: plain special token texts, and unused keys.
void note_conversation(const Conversation& conversation, const ReaderOptions& options) {
  if (!options.notes) return;
  note_keys(conversation, nullptr, *options.notes);
  for (const Json& message : conversation.messages) {
    const std::string text(content_text(message));
    for (const auto& [begin, end] : options.special_tokens.find(text))
      if (!reads_special_tokens(options.chat_template, message.at("role").as_string(), text))
        ++options.notes->plain_tokens[text.substr(begin, end - begin)];
  }
}

// Targets reach to the end of the text.
void extend_targets(std::vector<DocumentPiece>& pieces) {
  const auto is_target = [](const DocumentPiece& piece) { return piece.target || !piece.target_bytes.empty(); };
  const auto last = std::ranges::find_if(pieces.rbegin(), pieces.rend(), is_target).base();
  if (last == pieces.begin()) return;
  if (DocumentPiece& piece = *std::prev(last); !piece.target) piece.target_bytes.back().second = piece.text.size();
  for (auto piece = last; piece != pieces.end(); ++piece) piece->target = true;
}

// Ending of a record of answers: text of the template after its last answer belongs to the answer, as in TRL.
bool ends_in_answer(const Conversation& conversation, const ReaderOptions& options) {
  const Json& last = conversation.messages.back();
  return options.answers != AnswerRecords::none && last.at("role") == Json("assistant") && may_train(last);
}

std::vector<DocumentPiece> conversation_pieces(Conversation conversation, const ReaderOptions& options) {
  const bool all = options.train_on == TrainOn::all;
  if (!all)
    for (std::size_t i = 0; i < conversation.prompt_messages; ++i)
      if (conversation.messages[i].at("role") == Json("assistant")) conversation.messages[i].set("train", false);
  check_conversation(conversation);
  if (!all) require_assistant_targets(conversation);
  std::vector<DocumentPiece> pieces;
  if (options.chat_renderer) {
    pieces = options.chat_renderer->render(conversation, options.train_on, options.notes.get());
  } else {
    pieces = render_chat(options.chat_template, plain_messages(conversation), all);
    if (options.train_on == TrainOn::last) keep_last_targets(pieces);
    note_conversation(conversation, options);
  }
  if (ends_in_answer(conversation, options)) extend_targets(pieces);
  return pieces;
}

template <Conversation (*kConversation)(const Json& record)>
std::vector<DocumentPiece> chat_pieces(const Json& record, const ReaderOptions& options) {
  Conversation conversation = kConversation(record);
  if (is_left_out(record, options)) return {};
  std::erase_if(conversation.columns, [](const Json::Member& column) { return is_record_flag(column); });
  return conversation_pieces(std::move(conversation), options);
}

// The completion's messages are targets.
bool is_chat_pair(const Json& record) {
  return record.at("prompt").is_array() || record.at("completion").is_array();
}

std::vector<DocumentPiece> completion_pieces(const Json& record, const ReaderOptions& options) {
  if (is_left_out(record, options)) return {};
  note_keys_of(record, std::array<std::string_view, 2>{"prompt", "completion"}, options);
  const std::string& prompt = typed_field(record, "prompt", "string").as_string();
  const std::string& completion = typed_field(record, "completion", "string").as_string();
  if (completion.empty()) reject_record("the completion is empty");
  std::vector<DocumentPiece> pieces;
  const bool markup = options.special_text != SpecialText::text;
  if (!prompt.empty()) pieces.push_back({.text = prompt, .target = options.train_on == TrainOn::all, .markup = markup});
  pieces.push_back({.text = completion, .joined = !prompt.empty(), .markup = markup});
  return pieces;
}

// "instruction" and "output"
std::string quoted_keys(const RecordKind& kind, std::string_view field) {
  if (kind.keys.empty()) return fmt::format("\"{}\"", field);
  std::string text;
  for (const std::string_view key : kind.keys) text += fmt::format("{}\"{}\"", text.empty() ? "" : " and ", key);
  return text;
}

// For a record of no known kind.
std::string named_fields(const Json& record) {
  constexpr std::size_t kNamed = 8;
  std::vector<std::string> names;
  for (const auto& [key, value] : record.as_object())
    if (names.size() < kNamed) names.push_back(Json(key).dump());
  return fmt::format(
      "; the record has {}{}; data.columns names the columns of other data, as "
      "{{\"prompt\": \"question\", \"completion\": \"answer\"}} (verbs: --columns prompt=question,completion=answer)",
      names.empty() ? "none" : fmt::to_string(fmt::join(names, ", ")),
      record.as_object().size() > kNamed ? ", ..." : "");
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
                                               .form = R"({"messages", "tools", "system", "documents"})",
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
                                               .form = R"({"instruction", "input", "output", "system", "history"})",
                                               .keys = {"instruction", "output"},
                                               .read = chat_pieces<alpaca_conversation>,
                                               .rank = 4},
                                              {.name = "query",
                                               .summary = "a question and its answer in ms-swift's words, as a chat",
                                               .form = R"({"query", "response", "system", "history"})",
                                               .keys = {"query", "response"},
                                               .read = chat_pieces<query_conversation>,
                                               .rank = 4},
                                              {.name = "chat_completion",
                                               .summary = "a chat, of which the completion is trained on",
                                               .form = R"({"prompt": [...], "completion": [...]})",
                                               .keys = {"prompt", "completion"},
                                               .read = chat_pieces<completion_conversation>,
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
  if (record.find("chosen") != nullptr || record.find("rejected") != nullptr ||
      record.find("rejected_response") != nullptr)
    reject_record(
        "the record is a chosen and a rejected answer, which preference training reads: set the section preference of "
        "the run (verb tokenize: --preference pairs)");
  std::vector<std::string> keys{fmt::format("\"{}\"", field)};
  for (const RecordKind* kind : kinds_by_rank())
    if (!kind->keys.empty() && kind->fits == nullptr) keys.push_back(quoted_keys(*kind, field));
  const std::string last = std::move(keys.back());
  keys.pop_back();
  reject_record(fmt::format("no field {}, or {}{}", fmt::join(keys, ", "), last, named_fields(record)));
}

}  // namespace quench
