#include "apps/serve/api/request_keys.h"

#include <algorithm>
#include <limits>

#include "apps/serve/api/api_error.h"
#include "core/system/utf8.h"
#include "engine/engine.h"

namespace quench::serve {
namespace {

[[noreturn]] void refuse_type(const Json& value, const RequestKey& key, std::string_view expected) {
  throw bad_request(key.name, "\"{}\" is {}, expected {}", key.name, value.type_name(), expected);
}

std::int64_t integer(const Json& value, const RequestKey& key, std::int64_t least, std::int64_t most) {
  if (!value.is_integer()) refuse_type(value, key, "integer");
  if (value.as_int() < least || value.as_int() > most)
    throw bad_request(key.name, "\"{}\" is {}, expected {} to {}", key.name, value.dump(), least, most);
  return value.as_int();
}

double number(const Json& value, const RequestKey& key) {
  if (!value.is_number()) refuse_type(value, key, "number");
  return value.as_double();
}

bool boolean(const Json& value, const RequestKey& key) {
  if (!value.is_bool()) refuse_type(value, key, "true or false");
  return value.as_bool();
}

const std::string& text(const Json& value, const RequestKey& key) {
  if (!value.is_string()) refuse_type(value, key, "string");
  return value.as_string();
}

constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();

void read_model(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.model = text(value, key);
}

void read_messages(const Json& value, const RequestKey& key, ApiRequest& request) {
  if (!value.is_array()) refuse_type(value, key, "array");
  if (value.as_array().empty()) throw bad_request(key.name, "\"messages\" is empty");
  request.record.set(key.name, value);
}

void read_template_kwargs(const Json& value, const RequestKey& key, ApiRequest& request) {
  if (!value.is_object()) refuse_type(value, key, "object");
  request.record.set(key.name, value);
}

void read_tools(const Json& value, const RequestKey& key, ApiRequest& request) {
  if (!value.is_array()) refuse_type(value, key, "array");
  for (const Json& tool : value.as_array()) {
    const Json* function = tool.is_object() ? tool.find("function") : nullptr;
    const Json* name = function != nullptr && function->is_object() ? function->find("name") : nullptr;
    if (name == nullptr || !name->is_string())
      throw bad_request(key.name,
                        "a tool is no function with a name: expected {{\"type\": \"function\", \"function\": "
                        "{{\"name\": ...}}}}");
  }
  if (value.as_array().empty()) return;
  request.record.set(key.name, value);
  if (request.record.find("tool_choice") == nullptr) request.calls_tools = true;
}

void read_tool_choice(const Json& value, const RequestKey& key, ApiRequest& request) {
  if (value == Json("auto")) return;
  if (value != Json("none"))
    throw bad_request(key.name, "\"tool_choice\" is {}: a call cannot be forced; expected \"auto\" or \"none\"",
                      value.dump());
  request.calls_tools = false;
  request.record.set(key.name, value);
}

void read_parallel_calls(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.one_call = !boolean(value, key);
}

std::vector<std::int32_t> token_list(const Json::Array& values, const RequestKey& key) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(values.size());
  for (const Json& value : values) tokens.push_back(static_cast<std::int32_t>(integer(value, key, 0, kMostTokens)));
  return tokens;
}

CompletionPrompt token_prompt(const Json::Array& values, const RequestKey& key) {
  return {.text = {}, .tokens = token_list(values, key), .is_tokens = true};
}

void read_prompt(const Json& value, const RequestKey& key, ApiRequest& request) {
  if (value.is_string()) {
    request.prompts.push_back({.text = value.as_string(), .tokens = {}});
    return;
  }
  if (!value.is_array()) refuse_type(value, key, "string, list of strings, or token ids");
  const Json::Array& list = value.as_array();
  if (list.empty()) throw bad_request(key.name, "\"prompt\" is an empty list");
  if (list.front().is_integer()) {
    request.prompts.push_back(token_prompt(list, key));
    return;
  }
  if (list.size() > kMostPrompts)
    throw bad_request(key.name, "{} prompts, expected at most {}", list.size(), kMostPrompts);
  for (const Json& prompt : list) {
    if (prompt.is_string())
      request.prompts.push_back({.text = prompt.as_string(), .tokens = {}});
    else if (prompt.is_array())
      request.prompts.push_back(token_prompt(prompt.as_array(), key));
    else
      refuse_type(prompt, key, "string, list of strings, or token ids");
  }
}

void read_echo(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.echo = boolean(value, key);
}

void read_max_tokens(const Json& value, const RequestKey& key, ApiRequest& request) {
  const std::int64_t most = integer(value, key, 0, kMostTokens);
  if (request.max_tokens && *request.max_tokens != most)
    throw bad_request(key.name, "max_tokens and max_completion_tokens differ: give one of them");
  request.max_tokens = most;
}

void read_temperature(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.sampling.temperature = number(value, key);
}

void read_top_p(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.sampling.top_p = number(value, key);
}

void read_top_k(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.sampling.top_k = std::max<std::int64_t>(0, integer(value, key, -1, kMostTokens));  // -1: all, as in vLLM
}

void read_min_p(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.sampling.min_p = number(value, key);
}

void read_repetition_penalty(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.sampling.repetition_penalty = number(value, key);
}

// Negative seeds are those of their bits.
void read_seed(const Json& value, const RequestKey& key, ApiRequest& request) {
  if (!value.is_integer()) refuse_type(value, key, "integer");
  request.seed = value.dump().front() == '-' ? static_cast<std::uint64_t>(value.as_int()) : value.as_uint();
}

void read_choices(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.choices = integer(value, key, 1, kMostChoices);
}

void add_stop(const Json& value, const RequestKey& key, ApiRequest& request) {
  const std::string& stop = text(value, key);
  if (stop.empty()) throw bad_request(key.name, "an empty stop text would end every answer at once");
  if (stop.size() > kMostStopBytes || request.stop.size() == kMostStops)
    throw bad_request(key.name, "expected at most {} stop texts of at most {} bytes", kMostStops, kMostStopBytes);
  request.stop.push_back(stop);
}

void read_stop(const Json& value, const RequestKey& key, ApiRequest& request) {
  if (!value.is_array()) return add_stop(value, key, request);
  for (const Json& stop : value.as_array()) add_stop(stop, key, request);
}

void read_ignore_eos(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.ignore_eos = boolean(value, key);
}

void read_skip_special(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.skip_special = boolean(value, key);
}

void read_stream(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.stream = boolean(value, key);
}

void read_stream_options(const Json& value, const RequestKey& key, ApiRequest& request) {
  if (!value.is_object()) refuse_type(value, key, "object");
  for (const auto& [name, option] : value.as_object()) {
    if (name != "include_usage" && name != "include_obfuscation")
      throw bad_request(key.name, "unknown key \"stream_options.{}\"", name);
    if (!option.is_bool()) throw bad_request(key.name, "\"stream_options.{}\" is no boolean", name);
    if (name == "include_usage") request.include_usage = option.as_bool();
  }
}

void read_chat_logprobs(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.logprobs = boolean(value, key);
}

void read_completion_logprobs(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.top_logprobs = integer(value, key, 0, kMostTopLogprobs);
  request.logprobs = true;
}

void read_top_logprobs(const Json& value, const RequestKey& key, ApiRequest& request) {
  request.top_logprobs = integer(value, key, 0, kMostTopLogprobs);
}

void set_format(GrammarSource format, const RequestKey& key, ApiRequest& request) {
  if (request.format)
    throw bad_request(key.name, "response_format and structured_outputs both name a format: give one of them");
  request.format = std::move(format);
}

// A schema is an object, or true.
GrammarSource schema_format(const Json* schema, const RequestKey& key, std::string_view place) {
  if (schema == nullptr || !(schema->is_object() || *schema == Json(true)))
    throw bad_request(key.name, "\"{}\" is {}, expected a JSON schema", place,
                      schema == nullptr ? "missing" : schema->type_name());
  return {.kind = GrammarKind::json_schema, .text = schema->dump()};
}

void read_response_format(const Json& value, const RequestKey& key, ApiRequest& request) {
  if (!value.is_object()) refuse_type(value, key, "object");
  const Json* type = value.find("type");
  const std::string name = type != nullptr && type->is_string() ? type->as_string() : "";
  for (const auto& [member, unused] : value.as_object())
    if (member != "type" && !(member == "json_schema" && name == "json_schema"))
      throw bad_request(key.name, "unknown key \"response_format.{}\"", member);
  if (name == "text") return;
  if (name == "json_object") return set_format({.kind = GrammarKind::json_object}, key, request);
  if (name != "json_schema")
    throw bad_request(key.name, "\"response_format.type\" is {}, expected \"text\", \"json_object\" or \"json_schema\"",
                      type == nullptr ? "missing" : shorten_utf8(type->dump(), 200));
  const Json* form = value.find("json_schema");
  if (form == nullptr || !form->is_object())
    throw bad_request(key.name, "\"response_format.json_schema\" is {}, expected an object with \"schema\"",
                      form == nullptr ? "missing" : form->type_name());
  for (const auto& [member, unused] : form->as_object())
    if (member != "name" && member != "description" && member != "strict" && member != "schema")
      throw bad_request(key.name, "unknown key \"response_format.json_schema.{}\"", member);
  set_format(schema_format(form->find("schema"), key, "response_format.json_schema.schema"), key, request);
}

// As vLLM's.
void read_structured_outputs(const Json& value, const RequestKey& key, ApiRequest& request) {
  if (!value.is_object()) refuse_type(value, key, "object");
  for (const auto& [member, form] : value.as_object()) {
    if (form.is_null()) continue;
    if (member == "json") {
      set_format(schema_format(&form, key, "structured_outputs.json"), key, request);
    } else if (member == "regex") {
      if (!form.is_string())
        throw bad_request(key.name, "\"structured_outputs.regex\" is {}, expected string", form.type_name());
      set_format({.kind = GrammarKind::regex, .text = form.as_string()}, key, request);
    } else {
      throw bad_request(key.name, "unknown key \"structured_outputs.{}\", expected \"json\" or \"regex\"", member);
    }
  }
}

void ignore(const Json&, const RequestKey&, ApiRequest&) {}

void require_neutral(const Json& value, const RequestKey& key, ApiRequest&) {
  if (value != Json::parse(key.neutral))
    throw bad_request(key.name, "\"{}\" is {}, which this server cannot do: leave it out, or {}", key.name,
                      shorten_utf8(value.dump(), 200), key.neutral);
}

constexpr RequestKey kKeys[] = {
    {"model", kOfBoth, read_model},
    {"messages", kOfChat, read_messages},
    {"tools", kOfChat, read_tools},
    {"tool_choice", kOfChat, read_tool_choice},
    {"parallel_tool_calls", kOfChat, read_parallel_calls},
    {"chat_template_kwargs", kOfChat, read_template_kwargs},
    {"prompt", kOfCompletions, read_prompt},
    {"echo", kOfCompletions, read_echo},
    {"best_of", kOfCompletions, ignore},  // checked with n
    {"max_tokens", kOfBoth, read_max_tokens},
    {"max_completion_tokens", kOfChat, read_max_tokens},
    {"temperature", kOfBoth, read_temperature},
    {"top_p", kOfBoth, read_top_p},
    {"top_k", kOfBoth, read_top_k},
    {"min_p", kOfBoth, read_min_p},
    {"repetition_penalty", kOfBoth, read_repetition_penalty},
    {"seed", kOfBoth, read_seed},
    {"n", kOfBoth, read_choices},
    {"stop", kOfBoth, read_stop},
    {"ignore_eos", kOfBoth, read_ignore_eos},
    {"skip_special_tokens", kOfBoth, read_skip_special},
    {"stream", kOfBoth, read_stream},
    {"stream_options", kOfBoth, read_stream_options},
    {"logprobs", kOfChat, read_chat_logprobs},
    {"logprobs", kOfCompletions, read_completion_logprobs},
    {"top_logprobs", kOfChat, read_top_logprobs},
    {"response_format", kOfBoth, read_response_format},
    {"structured_outputs", kOfBoth, read_structured_outputs},
    {"user", kOfBoth, ignore},
    {"store", kOfChat, ignore},
    {"metadata", kOfChat, ignore},
    {"service_tier", kOfChat, ignore},
    {"safety_identifier", kOfChat, ignore},
    {"prompt_cache_key", kOfChat, ignore},
    {"frequency_penalty", kOfBoth, require_neutral, "0"},
    {"presence_penalty", kOfBoth, require_neutral, "0"},
    {"logit_bias", kOfBoth, require_neutral, "{}"},
    {"modalities", kOfChat, require_neutral, R"(["text"])"},
    {"suffix", kOfCompletions, require_neutral, R"("")"},
};

}  // namespace

const RequestKey* find_request_key(std::string_view name, unsigned endpoint) {
  const auto* const found = std::ranges::find_if(
      kKeys, [&](const RequestKey& key) { return key.name == name && (key.endpoints & endpoint) != 0; });
  return found == std::end(kKeys) ? nullptr : found;
}

}  // namespace quench::serve
