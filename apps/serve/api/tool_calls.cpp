#include "apps/serve/api/tool_calls.h"

#include <algorithm>
#include <optional>

#include "apps/serve/api/identifiers.h"
#include "core/json/json.h"
#include "data/text/document_reader.h"

namespace quench::serve {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kBlank = " \t\r\n";

std::optional<ToolCall> parse_call(std::string_view text) {
  try {
    const Json call = Json::parse(text);
    const Json* name = call.is_object() ? call.find("name") : nullptr;
    const Json* arguments = call.is_object() ? call.find("arguments") : nullptr;
    if (arguments == nullptr && call.is_object()) arguments = call.find("parameters");
    if (name == nullptr || !name->is_string()) return std::nullopt;
    std::string json = "{}";
    if (arguments != nullptr && !arguments->is_null())
      json = arguments->is_string() ? arguments->as_string() : arguments->dump();
    return ToolCall{new_identifier("call_", 24), name->as_string(), std::move(json)};
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Begin of the longest end of `text` that `mark` begins with.
std::size_t partial_mark(std::string_view text, std::string_view mark) {
  for (std::size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length)
    if (mark.starts_with(text.substr(text.size() - length))) return text.size() - length;
  return text.size();
}

}  // namespace

bool writes_tool_calls(const Tokenizer& tokenizer, const std::string& chat_template) {
  const auto has_mark = [](const std::string& text) { return text.find(kOpen) != std::string::npos; };
  if (const std::string chosen = chat_template_text(chat_template); !chosen.empty()) return has_mark(chosen);
  const auto& templates = tokenizer.chat_template();
  if (!templates) return false;
  return has_mark(templates->text) ||
         std::ranges::any_of(templates->named, [&](const auto& named) { return has_mark(named.text); });
}

std::string ToolCallParser::text_before_mark() {
  const std::size_t mark = pending_.find(kOpen);
  std::size_t end = mark != std::string::npos ? mark : partial_mark(pending_, kOpen);
  const std::size_t solid = std::string_view(pending_).substr(0, end).find_last_not_of(kBlank);
  end = solid == std::string::npos ? 0 : solid + 1;
  std::string text = pending_.substr(0, end);
  if (after_call_ && !text.empty()) {
    text.erase(0, text.find_first_not_of(kBlank));
    if (had_text_) text.insert(0, "\n");
  }
  after_call_ = after_call_ && text.empty();
  had_text_ = had_text_ || !text.empty();
  if (mark == std::string::npos) {
    pending_.erase(0, end);
  } else {
    pending_.erase(0, mark + kOpen.size());
    in_call_ = true;
  }
  return text;
}

std::string ToolCallParser::push(std::string_view piece, std::vector<ToolCall>& calls) {
  pending_ += piece;
  std::string text;
  for (;;) {
    if (!in_call_) {
      text += text_before_mark();
      if (!in_call_) return text;
    }
    const std::size_t end = pending_.find(kClose);
    if (end == std::string::npos) return text;
    const std::string_view inside = std::string_view(pending_).substr(0, end);
    if (std::optional<ToolCall> call = parse_call(inside)) {
      calls.push_back(std::move(*call));
      after_call_ = true;
    } else {
      text.append(kOpen).append(inside).append(kClose);
      after_call_ = false;
    }
    pending_.erase(0, end + kClose.size());
    in_call_ = false;
  }
}

std::string ToolCallParser::finish(std::vector<ToolCall>& calls) {
  std::string rest = std::move(pending_);
  pending_.clear();
  if (in_call_) {
    in_call_ = false;
    if (std::optional<ToolCall> call = parse_call(rest)) {
      calls.push_back(std::move(*call));
      return {};
    }
    return std::string(kOpen) + rest;
  }
  return after_call_ && rest.find_first_not_of(kBlank) == std::string::npos ? std::string() : rest;
}

}  // namespace quench::serve
