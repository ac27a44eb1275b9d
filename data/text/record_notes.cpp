#include "data/text/record_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/json/json.h"

namespace quench {
namespace {

constexpr std::size_t kMaxNamed = 20;

// "a" (3 records), "b" (1 record)
std::string listed(const RecordNotes::Counts& counts, const char* unit) {
  std::string text;
  std::size_t named = 0;
  for (const auto& [name, count] : counts) {
    if (named++ == kMaxNamed) return fmt::format("{} and {} more", text, counts.size() - kMaxNamed);
    text +=
        fmt::format("{}{} ({} {}{})", text.empty() ? "" : ", ", Json(name).dump(), count, unit, count == 1 ? "" : "s");
  }
  return text;
}

std::string conversations(std::uint64_t count) {
  return count == 1 ? "1 conversation" : fmt::format("{} conversations", count);
}

constexpr std::array<std::string_view, 3> kThoughts = {"reasoning_content", "thinking", "reasoning"};

bool reads_key(const TemplateNames* names, std::string_view key) {
  if (key == "role" || key == "content" || key == "train" || key == "name" || key == "tool_call_id") return true;
  if (names == nullptr) return false;
  if (std::ranges::find(kThoughts, key) == kThoughts.end()) return names->mentions(key);
  return std::ranges::any_of(kThoughts, [&](std::string_view name) { return names->mentions(name); });
}

bool is_there(const Json& list) {
  return !list.is_null() && !list.as_array().empty();
}

}  // namespace

void note_keys(const Conversation& conversation, const TemplateNames* names, RecordNotes& notes) {
  const auto unread = [&](std::string_view key) { return names == nullptr || !names->reads(key); };
  if (is_there(conversation.tools) && unread("tools")) ++notes.record_keys["tools"];
  if (is_there(conversation.documents) && unread("documents")) ++notes.record_keys["documents"];
  for (const auto& [key, value] : conversation.columns)
    if (unread(key)) ++notes.record_keys[key];
  for (const auto& [key, value] : conversation.template_kwargs)
    if (key != "chat_template" && unread(key)) ++notes.record_keys["chat_template_kwargs." + key];
  for (const Json& message : conversation.messages)
    for (const auto& [key, value] : message.as_object()) {
      const bool alias = key == "thinking" && message.find("reasoning_content") != nullptr;
      if (!value.is_null() && !alias && !reads_key(names, key)) ++notes.message_keys[key];
    }
}

void note_lost_bytes(std::span<const Document> documents, std::span<const std::uint8_t> bytes, RecordNotes& notes) {
  if (bytes.empty()) return;
  std::array<std::uint64_t, 256> counts{};
  for (const Document& document : documents)
    for (const DocumentPiece& piece : document.pieces)
      for (const char byte : piece.text) ++counts[static_cast<std::uint8_t>(byte)];
  for (const std::uint8_t byte : bytes)
    if (counts[byte] > 0) notes.lost_bytes[fmt::format("0x{:02X}", byte)] += counts[byte];
}

void note_keys(const Json& record, std::span<const std::string_view> read, RecordNotes& notes) {
  for (const auto& [key, value] : record.as_object())
    if (!value.is_null() && std::ranges::find(read, std::string_view(key)) == read.end()) ++notes.record_keys[key];
}

std::vector<std::string> RecordNotes::warnings() const {
  std::vector<std::string> lines;
  if (!record_texts.empty())
    lines.push_back(fmt::format(
        "{} begins with a JSON record, but is read as plain text by its name{}; set data.format (--format) to "
        "jsonl or json for records, or to text to keep it as text without this warning",
        *record_texts.begin(),
        record_texts.size() == 1 ? std::string() : fmt::format(" ({} such files)", record_texts.size())));
  if (!record_keys.empty()) lines.push_back(fmt::format("unused keys of records: {}", listed(record_keys, "record")));
  if (!message_keys.empty())
    lines.push_back(
        fmt::format("keys of messages that the chat template does not read: {}", listed(message_keys, "message")));
  if (!unwritten.empty())
    lines.push_back(fmt::format("text of messages that the chat template does not render (not trained): {}",
                                listed(unwritten, "message")));
  if (!plain_tokens.empty())
    lines.push_back(fmt::format("special tokens in the text of messages are encoded as plain characters: {}",
                                listed(plain_tokens, "occurrence")));
  if (!lost_bytes.empty())
    lines.push_back(fmt::format("the tokenizer has no token for these bytes of the texts, which are lost: {}",
                                listed(lost_bytes, "occurrence")));
  if (left_out > 0)
    lines.push_back(fmt::format("{} left out: a flag of the record excludes it",
                                left_out == 1 ? "1 record is" : fmt::format("{} records are", left_out)));
  if (unended > 0)
    lines.push_back(
        fmt::format("the chat template writes no special token after the last turn of {}: the model is not "
                    "trained to end it",
                    conversations(unended)));
  if (unended_generation > 0)
    lines.push_back(
        fmt::format("the {{% generation %}} blocks of the chat template leave out the token that ends a "
                    "turn, in {}: the model is not trained to end it",
                    conversations(unended_generation)));
  return lines;
}

}  // namespace quench
