#include "apps/serve/api/request.h"

#include "apps/serve/api/api_error.h"
#include "apps/serve/api/request_keys.h"

namespace quench::serve {
namespace {

void read_keys(const Json& body, unsigned endpoint, ApiRequest& request) {
  if (!body.is_object()) throw bad_request("", "the body is {}, expected a JSON object", body.type_name());
  for (const auto& [name, value] : body.as_object()) {
    const RequestKey* key = find_request_key(name, endpoint);
    if (key == nullptr) throw bad_request(name, "unknown key \"{}\"", name);
    if (value.is_null()) continue;
    try {
      key->read(value, *key, request);
      check_sampling_options(request.sampling);
    } catch (const Error& error) {
      throw api_error(error, name);
    }
  }
  if (request.top_logprobs > 0 && !request.logprobs)
    throw bad_request("top_logprobs", "top_logprobs goes with logprobs: true");
  if (request.format && request.record.find("tools") != nullptr)
    throw bad_request("response_format", "an answer in a format calls no tools: leave one of the two out");
  if (request.include_usage && !request.stream)
    throw bad_request("stream_options", "stream_options goes with stream: true");
}

// "best_of" of completions equals n, or is 1.
void check_best_of(const Json& body, const ApiRequest& request) {
  const Json* best = body.find("best_of");
  if (best == nullptr || best->is_null() || *best == Json(1) || *best == Json(request.choices)) return;
  throw bad_request("best_of", "best_of is {}: answers are not ranked; expected 1 or the value of n", best->dump());
}

}  // namespace

Json parse_body(std::string_view body) {
  try {
    return Json::parse(body, {.max_bytes = body.size() + 1, .source = "the body"});
  } catch (const Error& error) {
    throw api_error(error);
  }
}

ApiRequest parse_chat_request(const Json& body, const SamplingOptions& defaults) {
  ApiRequest request{.chat = true, .sampling = defaults};
  read_keys(body, kOfChat, request);
  if (request.record.find("messages") == nullptr)
    throw bad_request("messages", "the request has no messages: expected \"messages\": [{{\"role\": \"user\", ...}}]");
  (void)request.record.erase("tool_choice");
  if (!request.calls_tools) (void)request.record.erase("tools");
  request.calls_tools = request.record.find("tools") != nullptr;
  try {
    request.conversation = openai_conversation(request.record);
  } catch (const Error& error) {
    throw api_error(error, "messages");
  }
  request.record = Json();
  return request;
}

ApiRequest parse_completion_request(const Json& body, const SamplingOptions& defaults) {
  ApiRequest request{.sampling = defaults};
  read_keys(body, kOfCompletions, request);
  check_best_of(body, request);
  if (request.prompts.empty()) throw bad_request("prompt", "the request has no prompt");
  if (!request.max_tokens) request.max_tokens = 16;  // OpenAI's default
  return request;
}

}  // namespace quench::serve
