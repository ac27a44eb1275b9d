#pragma once
// Function calls in the text of an answer: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, the form of
// Hermes, Qwen and others.

#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace quench::serve {

struct ToolCall {
  std::string id;  // "call_" and 24 digits
  std::string name;
  std::string arguments;  // JSON
};

// Whether the template in use writes calls so. `chat_template`: as in section data; "auto": the tokenizer's.
[[nodiscard]] bool writes_tool_calls(const Tokenizer& tokenizer, const std::string& chat_template);

// Takes calls out of a text that arrives in pieces. What is no call stays text; white space next to calls is dropped,
// but for a line break between a text before them and one after them.
class ToolCallParser {
 public:
  // Text that has become certain; complete calls are appended to `calls`.
  [[nodiscard]] std::string push(std::string_view piece, std::vector<ToolCall>& calls);
  // The rest, at the end: a call without its end mark counts if its JSON is complete.
  [[nodiscard]] std::string finish(std::vector<ToolCall>& calls);

 private:
  // Takes what is certain off pending_.
  [[nodiscard]] std::string text_before_mark();

  std::string pending_;
  bool in_call_ = false;
  bool after_call_ = false;  // nothing but white space since
  bool had_text_ = false;    // before a call
};

}  // namespace quench::serve
