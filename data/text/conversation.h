#pragma once
// Conversation in OpenAI's message format, from any record format.

#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "data/text/chat_template.h"
#include "data/text/conversation_fields.h"

namespace quench {

struct Conversation {
  // {"role": "system" | "developer" | "user" | "assistant" | "tool" | "environment", "content": "..." or null} and
  // other keys; null only with calls or reasoning. "train": boolean, if flagged (is_train_flag).
  Json::Array messages;
  Json tools{};      // function descriptions, or null
  Json documents{};  // for retrieval, or null
  // "chat_template_kwargs", and the record's other keys, for templates that read them.
  Json::Object template_kwargs{}, columns{};
  std::size_t prompt_messages = 0;  // leading ones, never targets
};

// {"messages": [...], "tools": [...], "documents": [...], "system": "...", "chat_template_kwargs": {...}}, only the
// first required. Contents may be lists of {"type": "text", "text": "..."} (concatenated). Reasoning:
// "reasoning_content", "thinking" or "reasoning". "functions", "function_call": legacy. "system": unless already first.
// ShareGPT messages are accepted, and vice versa. OLMo 3's "function_calls" and "functions", texts, stay as they are
// for its template.
[[nodiscard]] Conversation openai_conversation(const Json& record);
// {"conversations": [{"from": "human", "value": "..."}, ...]}, optional "system" and "tools". "function_call" turns are
// a call ({"name": ..., "arguments": ...}) or a list of them, with text before them or around <tool_call> marks as
// content; "observation" and "tool" turns their results.
[[nodiscard]] Conversation sharegpt_conversation(const Json& record);
// {"instruction": "...", "input": "...", "output": "..."}, "input" optional, after optional "system" and "history"
// ([["question", "answer"], ...]).
[[nodiscard]] Conversation alpaca_conversation(const Json& record);
// {"query": "...", "response": "..."}, otherwise as alpaca.
[[nodiscard]] Conversation query_conversation(const Json& record);
// The turns of "history", then a user message of the texts in `key` and "input".
[[nodiscard]] Json::Array question_messages(const Json& record, std::string_view key);
// {"prompt": [...], "completion": [...]}: the prompt's messages are not targets.
[[nodiscard]] Conversation completion_conversation(const Json& record);
// For all conversions: Error(corrupt) for missing or mistyped fields; invalid_argument "message <i>: ..." for an
// unknown role, an empty user or assistant message, or no trainable assistant message.
void check_conversation(const Conversation& conversation);
// Unless excluded by the record.
[[nodiscard]] bool may_train(const Json& message);
// Empty if null.
[[nodiscard]] std::string_view content_text(const Json& message);
// Throws invalid_argument "message <i>: ..." if another role is flagged for training.
void require_assistant_targets(const Conversation& conversation);
// For built-in templates: throws invalid_argument for tools.
[[nodiscard]] std::vector<ChatMessage> plain_messages(const Conversation& conversation);

[[nodiscard]] const Json& typed_field(const Json& record, std::string_view key, std::string_view type);

}  // namespace quench
