#pragma once
// Requests of /v1/chat/completions and /v1/completions.
//
// Every key of a request is known: it acts, or is about the caller's records and has no effect (user, store, metadata,
// ...), or has one value that changes nothing (frequency_penalty 0). All else throws ApiError 400 naming the key.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "data/text/conversation.h"
#include "engine/grammar/grammar.h"
#include "engine/sampling.h"

namespace quench::serve {

struct CompletionPrompt {
  std::string text;
  std::vector<std::int32_t> tokens;  // in place of the text, if `is_tokens`
  bool is_tokens = false;
};

struct ApiRequest {
  bool chat = false;
  std::string model;  // empty: not named
  // Chat.
  Json record = Json::object();  // messages, tools, chat_template_kwargs
  Conversation conversation;     // from the record
  bool calls_tools = false;      // tools are offered, and the model may call them
  bool one_call = false;         // parallel_tool_calls: false
  // Completions.
  std::vector<CompletionPrompt> prompts;
  bool echo = false;
  // Both.
  std::optional<std::int64_t> max_tokens;
  SamplingOptions sampling;
  std::optional<std::uint64_t> seed;
  std::int64_t choices = 1;  // per prompt
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool skip_special = true;             // in the text
  std::optional<GrammarSource> format;  // answer's; none: any text
  bool stream = false, include_usage = false;
  bool logprobs = false;
  std::int64_t top_logprobs = 0;
};

inline constexpr std::int64_t kMostChoices = 128;
inline constexpr std::size_t kMostStops = 16, kMostStopBytes = 1024, kMostPrompts = 256;

// Invalid UTF-8, nesting beyond 64 levels, duplicate keys and other faults of the text: ApiError 400 with position.
[[nodiscard]] Json parse_body(std::string_view body);

// `defaults`: sampling where the request is silent.
[[nodiscard]] ApiRequest parse_chat_request(const Json& body, const SamplingOptions& defaults);
[[nodiscard]] ApiRequest parse_completion_request(const Json& body, const SamplingOptions& defaults);

}  // namespace quench::serve
