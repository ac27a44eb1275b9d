#pragma once
// Normalized conversation in OpenAI's message format, for every record format.

#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "data/text/chat_template.h"
#include "data/text/conversation_fields.h"

namespace quench {

struct Conversation {
  // {"role": "system" | "developer" | "user" | "assistant" | "tool", "content": "..." or null} and the record's other
  // keys; null only with calls or reasoning.
  // "train": boolean, if flagged (is_train_flag).
  Json::Array messages;
  Json tools{};      // array of function descriptions, or null
  Json documents{};  // array of retrieval documents, or null
  // Template arguments ("chat_template_kwargs"), and the record's other keys, passed to templates that read them.
  Json::Object template_kwargs{}, columns{};
  std::size_t prompt_messages = 0;  // leading messages that form a prompt and are never targets
};

// {"messages": [...], "tools": [...], "documents": [...], "system": "...", "chat_template_kwargs": {...}}, all optional
// but the first. Contents may be lists of {"type": "text", "text": "..."} parts (concatenated). Reasoning:
// "reasoning_content", "thinking" or "reasoning". "functions", "function_call": legacy tools and calls. "system":
// system message, unless already first. ShareGPT messages are accepted, and vice versa.
[[nodiscard]] Conversation openai_conversation(const Json& record);
// {"conversations": [{"from": "human", "value": "..."}, ...]}, optional "system" and "tools". "function_call" turns are
// calls ({"name": ..., "arguments": ...}); "observation" and "tool" turns their results.
[[nodiscard]] Conversation sharegpt_conversation(const Json& record);
// {"instruction": "...", "input": "...", "output": "..."}, "input" optional: one question and answer, after optional
// "system" and "history" ([["question", "answer"], ...]).
[[nodiscard]] Conversation alpaca_conversation(const Json& record);
// {"prompt": [...], "completion": [...]}: messages; the prompt's are not targets.
[[nodiscard]] Conversation completion_conversation(const Json& record);
// Errors of all conversions: Error(corrupt) for missing or mistyped fields; invalid_argument "message <i>: ..." for an
// unknown role, an empty user or assistant message, or no trainable assistant message.
void check_conversation(const Conversation& conversation);
// False if the record excludes the message from training.
[[nodiscard]] bool may_train(const Json& message);
// Content of a message; empty if null.
[[nodiscard]] std::string_view content_text(const Json& message);
// Throws invalid_argument "message <i>: ..." if a message of another role than assistant is flagged for training.
void require_assistant_targets(const Conversation& conversation);
// For the built-in templates, which have no tool format: throws invalid_argument for tools.
[[nodiscard]] std::vector<ChatMessage> plain_messages(const Conversation& conversation);

[[nodiscard]] const Json& typed_field(const Json& record, std::string_view key, std::string_view type);

}  // namespace quench
