#pragma once
// A conversation in OpenAI's form, whatever form its record has.

#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "data/text/chat_template.h"
#include "data/text/conversation_fields.h"

namespace quench {

struct Conversation {
  // {"role": "system" | "developer" | "user" | "assistant" | "tool", "content": "..."}, with whatever other keys the
  // record has, such as "tool_calls". "train" is there, as a boolean, where the record says whether to train on the
  // message (is_train_flag).
  Json::Array messages;
  Json tools{};      // an array of function descriptions, or null
  Json documents{};  // an array of documents for retrieval, or null
  // Arguments of the template ("chat_template_kwargs"), and the record's other keys, of which it gets those that it
  // reads.
  Json::Object template_kwargs{}, columns{};
  std::size_t prompt_messages = 0;  // so many messages at the beginning are a prompt, of which nothing is completed
};

// {"messages": [...], "tools": [...], "documents": [...], "system": "...", "chat_template_kwargs": {...}}, all but the
// first optional: a content may be a list of {"type": "text", "text": "..."} parts, which are joined; thoughts may be
// called "reasoning_content", "thinking" or "reasoning"; "functions" and "function_call" are the older names of tools
// and calls. "system" is a system message, unless the messages begin with the same one. Messages of the next form are
// taken too, and there messages of this one.
[[nodiscard]] Conversation openai_conversation(const Json& record);
// {"conversations": [{"from": "human", "value": "..."}, ...]}, "system" and "tools" beside it: the turns of
// "function_call" are calls ({"name": ..., "arguments": ...}), those of "observation" and "tool" their results.
[[nodiscard]] Conversation sharegpt_conversation(const Json& record);
// {"instruction": "...", "input": "...", "output": "..."} with "input" optional: a question and its answer, after
// "system" and the questions and answers of "history" ([["question", "answer"], ...]) if there are any.
[[nodiscard]] Conversation alpaca_conversation(const Json& record);
// {"prompt": [...], "completion": [...]}: messages, of which those of the prompt are not trained on.
[[nodiscard]] Conversation completion_conversation(const Json& record);
// All of them, and those below, throw Error(corrupt) for a field that is missing or of a wrong type, and
// invalid_argument "message <i>: ..." for an unknown role, a user or an assistant that says nothing, and a conversation
// without an assistant to train on.
void check_conversation(const Conversation& conversation);
// False where the record says not to train on the message.
[[nodiscard]] bool may_train(const Json& message);
// Throws invalid_argument "message <i>: ..." where the record says to train on a message that is not the assistant's.
void require_assistant_targets(const Conversation& conversation);
// For the written templates, which have no form for tools: throws invalid_argument where there are any.
[[nodiscard]] std::vector<ChatMessage> plain_messages(const Conversation& conversation);

// record[key], which must be there and of the type "string" or "array".
[[nodiscard]] const Json& typed_field(const Json& record, std::string_view key, std::string_view type);

}  // namespace quench
