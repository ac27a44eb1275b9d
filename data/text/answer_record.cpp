#include "data/text/record_kind.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "data/text/chat_template.h"
#include "data/text/conversation.h"

namespace quench {
namespace {

// Keys that are no context of an answer.
constexpr std::array<std::string_view, 7> kAnswerKeys = {"prompt",   "completion", "chosen",       "rejected",
                                                         "messages", "label",      "conversations"};

constexpr std::string_view kPairForm = R"({"prompt", "chosen", "rejected"})";
constexpr std::string_view kLabelForm = R"({"prompt", "completion", "label"})";

bool holds(const Json& record, std::string_view key) {
  const Json* value = record.find(key);
  return value != nullptr && !value->is_null();
}

const Json& answer_at(const Json& record, std::string_view key) {
  const Json& answer = record.at(key);
  if (!answer.is_string() && !answer.is_array())
    reject_record(fmt::format("field \"{}\" is {}, expected string or array of messages", key, answer.type_name()));
  return answer;
}

// Takes a field out of a record; null if absent.
Json taken(Json& record, std::string_view key) {
  const Json* found = record.find(key);
  Json value = found != nullptr ? *found : Json();
  record.erase(key);
  return value;
}

Json answer_message(const Json& answer) {
  return Json::Array{answer.is_string() ? Json(Json::Object{{"role", "assistant"}, {"content", answer}}) : answer};
}

bool is_answering(const Json& message) {
  if (!message.is_object()) return false;
  const Json* speaker = message.find("role") != nullptr ? message.find("role") : message.find("from");
  constexpr std::array<std::string_view, 5> kAnswering = {"assistant", "gpt", "chatgpt", "model", "function_call"};
  return speaker != nullptr && speaker->is_string() &&
         std::ranges::find(kAnswering, std::string_view(speaker->as_string())) != kAnswering.end();
}

std::string_view conversation_key(const Json& record) {
  for (const std::string_view key : {"messages", "conversations"})
    if (holds(record, key) && record.at(key).is_array()) return key;
  return {};
}

// The last message of the conversation becomes the answer `key`, those before it the prompt.
void split_conversation(Json& record, std::string_view key) {
  const std::string_view list = conversation_key(record);
  Json::Array messages = taken(record, list).as_array();
  if (messages.empty() || !is_answering(messages.back()))
    reject_record(fmt::format("the last of the \"{}\" is no answer of the assistant", list));
  record.set(key, Json::Array{std::move(messages.back())});
  messages.pop_back();
  record.set("prompt", std::move(messages));
}

// Answers of ms-swift: "rejected_response" next to a conversation or a "response", "rejected_messages" next to
// "messages".
void set_answers(Json& record) {
  if (holds(record, "rejected_messages") && holds(record, "messages")) {
    record.set("chosen", taken(record, "messages"));
    record.set("rejected", taken(record, "rejected_messages"));
  } else if (holds(record, "rejected_response")) {
    record.set("rejected", taken(record, "rejected_response"));
    if (!conversation_key(record).empty()) return split_conversation(record, "chosen");
    for (const std::string_view key : {"response", "output"})
      if (!holds(record, "chosen") && holds(record, key)) record.set("chosen", taken(record, key));
  }
}

// A prompt under another name: the messages before the answers, or LLaMA-Factory's question with its history.
void set_prompt(Json& record, std::span<const std::string_view> answers) {
  for (const std::string_view key : answers) {
    if (!holds(record, key)) return;
    const Json& answer = record.at(key);
    // A conversation of its own.
    if (answer.is_array() && (answer.as_array().empty() || !is_answering(answer.as_array().front()))) return;
  }
  if (const std::string_view list = conversation_key(record); !list.empty()) {
    record.set("prompt", taken(record, list));
  } else {
    constexpr std::array<std::string_view, 4> kQuestions = {"instruction", "question", "query", "input"};
    const auto key = std::ranges::find_if(kQuestions, [&](std::string_view name) { return holds(record, name); });
    if (key == kQuestions.end()) return;
    record.set("prompt", question_messages(record, *key));
    for (const std::string_view used : {*key, std::string_view("input"), std::string_view("history")})
      record.erase(used);
  }
  for (const std::string_view key : answers)
    if (record.at(key).is_string()) record.set(key, answer_message(record.at(key)));
}

// Fields of other programs as kPairForm or kLabelForm.
Json usual_fields(Json record, AnswerRecords kind) {
  if (!holds(record, "chosen")) set_answers(record);
  for (const std::string_view key : {"chosen", "rejected"})
    if (holds(record, key) && record.at(key).is_object()) record.set(key, answer_message(record.at(key)));
  if (holds(record, "chosen")) {
    constexpr std::array<std::string_view, 2> kPair = {"chosen", "rejected"};
    // An answer of messages, the other a text.
    if (holds(record, "rejected") && record.at("chosen").is_array() && record.at("rejected").is_string() &&
        record.at("chosen").as_array().size() == 1 && is_answering(record.at("chosen").as_array().front()))
      record.set("rejected", answer_message(record.at("rejected")));
    if (!holds(record, "prompt")) set_prompt(record, kPair);
  } else if (kind == AnswerRecords::labels) {
    constexpr std::array<std::string_view, 1> kAnswer = {"completion"};
    if (!holds(record, "label") && holds(record, "kto_tag")) record.set("label", taken(record, "kto_tag"));
    if (!holds(record, "completion") && !conversation_key(record).empty()) {
      split_conversation(record, "completion");
    } else {
      for (const std::string_view key : {"response", "output"})
        if (!holds(record, "completion") && holds(record, key)) record.set("completion", taken(record, key));
      if (!holds(record, "prompt")) set_prompt(record, kAnswer);
    }
  }
  return record;
}

bool is_white_space(const Json& text) {
  return text.is_string() && text.as_string().find_first_not_of(" \t\r\n") == std::string::npos;
}

// Without text, tool calls and thoughts.
bool is_silent(const Json& message) {
  constexpr std::array<std::string_view, 3> kNames = {"role", "from", "name"};
  return message.is_object() && std::ranges::all_of(message.as_object(), [&](const Json::Member& member) {
           const auto& [key, value] = member;
           return value.is_null() || std::ranges::find(kNames, std::string_view(key)) != kNames.end() ||
                  is_train_flag(key) || is_white_space(value) || (value.is_array() && value.as_array().empty());
         });
}

bool is_empty(const Json& answer) {
  return answer.is_string() ? is_white_space(answer) : std::ranges::all_of(answer.as_array(), is_silent);
}

std::size_t common_characters(const std::string& a, const std::string& b) {
  auto count = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const auto inside_character = [](const std::string& text, std::size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (count > 0 && (inside_character(a, count) || inside_character(b, count))) --count;
  // Tokenizers attach a space to the word after it.
  if (count > 0 && a[count - 1] == ' ') --count;
  return count;
}

Json rest_of(const Json& answer, std::size_t begin) {
  if (answer.is_string()) return answer.as_string().substr(begin);
  const Json::Array& list = answer.as_array();
  return Json::Array(list.begin() + static_cast<std::ptrdiff_t>(begin), list.end());
}

Json first_of(const Json& answer, std::size_t end) {
  if (answer.is_string()) return answer.as_string().substr(0, end);
  const Json::Array& list = answer.as_array();
  return Json::Array(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(end));
}

struct Pair {
  Json prompt, chosen, rejected;
};

// Without a prompt of the answers' form.
Pair split_pair(const Json& chosen, const Json& rejected) {
  std::size_t common = 0;
  if (chosen.is_string()) {
    common = common_characters(chosen.as_string(), rejected.as_string());
  } else {
    const Json::Array& a = chosen.as_array();
    common = static_cast<std::size_t>(std::ranges::mismatch(a, rejected.as_array()).in1 - a.begin());
    if (common == 0)
      reject_record("chosen and rejected begin with different messages; give the messages before them as \"prompt\"");
  }
  Pair pair{first_of(chosen, common), rest_of(chosen, common), rest_of(rejected, common)};
  for (const auto& [name, answer] : {std::pair("chosen", &pair.chosen), std::pair("rejected", &pair.rejected)})
    if (is_empty(*answer))
      reject_record(
          fmt::format("the {} answer is empty after the beginning that both answers share; give the prompt as "
                      "a field of its own",
                      name));
  return pair;
}

Pair pair_of(const Json& record) {
  for (const std::string_view key : {"chosen", "rejected"})
    if (!holds(record, key)) {
      const bool labelled = holds(record, "completion") && holds(record, "label");
      reject_record(fmt::format("no field \"{}\", expected {}{}", key, kPairForm,
                                labelled ? "; for records with a label set preference.loss to kto" : ""));
    }
  const Json& chosen = answer_at(record, "chosen");
  const Json& rejected = answer_at(record, "rejected");
  if (chosen.is_string() != rejected.is_string())
    reject_record(fmt::format("chosen is {} and rejected is {}; both must be texts, or both lists of messages",
                              chosen.type_name(), rejected.type_name()));
  for (const std::string_view key : {"chosen", "rejected"})
    if (is_empty(record.at(key))) reject_record(fmt::format("the {} answer is empty", key));
  if (chosen == rejected) reject_record("chosen and rejected are equal: the pair expresses no preference");
  if (!holds(record, "prompt")) return split_pair(chosen, rejected);
  const Json& prompt = answer_at(record, "prompt");
  if (prompt.is_array() && chosen.is_string())
    reject_record(
        "prompt is a list of messages, but chosen and rejected are texts; give them as lists of messages too");
  if (prompt.is_string() && !chosen.is_string()) return split_pair(chosen, rejected);
  return {prompt, chosen, rejected};
}

// Record of kind completion or chat_completion.
Document answer_document(const Json& record, const Json& prompt, const Json& answer, bool mark,
                         const ReaderOptions& options) {
  Json single = Json::object();
  for (const auto& [key, value] : record.as_object())
    if (answer.is_array() && std::ranges::find(kAnswerKeys, key) == kAnswerKeys.end()) single.set(key, value);
  single.set("prompt", prompt);
  single.set("completion", answer);
  const RecordKind* kind = record_kinds().find(answer.is_array() ? "chat_completion" : "completion");
  Document document{.complete = kind->complete, .mark = mark};
  document.pieces = kind->read(single, options);
  return document;
}

// Texts have no context but the prompt.
void note_unused_keys(const Json& record, std::initializer_list<std::string_view> used, const ReaderOptions& options) {
  if (!options.notes) return;
  std::vector<std::string_view> read(used);
  for (const Json::Member& member : record.as_object())
    if (is_record_flag(member)) read.push_back(member.first);
  note_keys(record, read, *options.notes);
}

std::string text_of(const Document& document) {
  std::string text;
  for (const DocumentPiece& piece : document.pieces) text += piece.text;
  return text;
}

bool label_of(const Json& record) {
  if (!holds(record, "label")) reject_record(fmt::format("no field \"label\", expected {}", kLabelForm));
  const Json& label = record.at("label");
  if (const std::optional<bool> value = truth(label, true)) return *value;
  reject_record(fmt::format("field \"label\" is {}, expected true, 1, false or 0", label.dump()));
}

constexpr std::array<std::string_view, 3> kPromptKeys = {"prompt", "messages", "conversations"};

// Key of the prompt; the first of the table that the record holds.
std::string_view prompt_key(const Json& record) {
  for (const std::string_view key : kPromptKeys)
    if (const Json* value = record.find(key); value != nullptr && !value->is_null()) return key;
  reject_record("no field \"prompt\" (a text or a list of messages), \"messages\" or \"conversations\"");
}

std::vector<DocumentPiece> message_pieces(const Json& record, std::string_view key, const ReaderOptions& options) {
  Json chat = record;
  if (key == "prompt") {
    chat.set("messages", record.at(key));
    chat.erase(key);
  }
  Conversation conversation = key == "conversations" ? sharegpt_conversation(chat) : openai_conversation(chat);
  std::erase_if(conversation.columns, [](const Json::Member& column) { return is_record_flag(column); });
  if (conversation.messages.empty()) reject_record(fmt::format("\"{}\" is an empty list", key));
  if (conversation.messages.back().at("role") == Json("assistant"))
    reject_record(fmt::format(
        "the last message of \"{}\" is the assistant's; a prompt ends before the answer that is sampled", key));
  return options.chat_renderer ? options.chat_renderer->prompt(conversation)
                               : render_chat_prompt(options.chat_template, plain_messages(conversation));
}

std::vector<DocumentPiece> plain_prompt(const Json& prompt, const ReaderOptions& options) {
  if (!prompt.is_string())
    reject_record(fmt::format("field \"prompt\" is {}, expected string or array of messages", prompt.type_name()));
  if (prompt.as_string().empty()) reject_record("the prompt is empty");
  return {{.text = prompt.as_string(), .markup = options.special_text != SpecialText::text}};
}

// The document of a prompt, or none.
std::vector<Document> prompt_documents(const Json& record, const ReaderOptions& options) {
  if (!record_flag(record).value_or(true)) {
    if (options.notes) ++options.notes->left_out;
    return {};
  }
  const std::string_view key = prompt_key(record);
  const bool is_chat = record.at(key).is_array();
  Document document{.complete = is_chat};
  document.pieces = is_chat ? message_pieces(record, key, options) : plain_prompt(record.at(key), options);
  for (DocumentPiece& piece : document.pieces) {
    piece.target = false;
    piece.targets.clear();
    piece.target_bytes.clear();
  }
  Json rest = Json::object();
  for (const auto& [name, value] : record.as_object())
    if (std::ranges::find(kPromptKeys, name) == kPromptKeys.end()) rest.set(name, value);
  document.pieces.push_back({.text = rest.dump()});
  std::vector<Document> documents;
  documents.push_back(std::move(document));
  return documents;
}

}  // namespace

std::vector<Document> answer_documents(const Json& given, const ReaderOptions& options) {
  if (options.answers == AnswerRecords::prompts) return prompt_documents(given, options);
  const Json record = usual_fields(given, options.answers);
  if (!record_flag(record).value_or(true)) {
    if (options.notes) ++options.notes->left_out;
    return {};
  }
  if (options.answers == AnswerRecords::labels && !holds(record, "chosen")) {
    const bool label = label_of(record);
    if (!holds(record, "completion")) reject_record(fmt::format("no field \"completion\", expected {}", kLabelForm));
    const Json& answer = answer_at(record, "completion");
    if (is_empty(answer)) reject_record("the completion is empty");
    if (!holds(record, "prompt")) reject_record(fmt::format("no field \"prompt\", expected {}", kLabelForm));
    if (answer_at(record, "prompt").is_string() != answer.is_string())
      reject_record("prompt and completion must both be texts, or both lists of messages");
    std::vector<Document> documents;
    documents.push_back(answer_document(record, record.at("prompt"), answer, label, options));
    if (answer.is_string()) note_unused_keys(record, {"prompt", "completion", "label"}, options);
    return documents;
  }
  const Pair pair = pair_of(record);
  std::vector<Document> documents;
  documents.push_back(answer_document(record, pair.prompt, pair.chosen, true, options));
  documents.push_back(answer_document(record, pair.prompt, pair.rejected, false, options));
  if (text_of(documents.front()) == text_of(documents.back()))
    reject_record(
        "chosen and rejected are equal under the chat template, which renders both to one text: the pair expresses no "
        "preference");
  if (pair.chosen.is_string()) note_unused_keys(record, {"prompt", "chosen", "rejected"}, options);
  return documents;
}

}  // namespace quench
