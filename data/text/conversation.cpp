#include "data/text/conversation.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/system/check.h"

namespace quench {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

// How data sets in ShareGPT's form name roles. A call of a function is an assistant's turn.
constexpr std::string_view kCall = "function_call";
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kSpeakers = {{{"human", "user"},
                                                                                      {"user", "user"},
                                                                                      {"gpt", "assistant"},
                                                                                      {"chatgpt", "assistant"},
                                                                                      {"model", "assistant"},
                                                                                      {"assistant", "assistant"},
                                                                                      {kCall, "assistant"},
                                                                                      {"system", "system"},
                                                                                      {"tool", "tool"},
                                                                                      {"function_response", "tool"},
                                                                                      {"observation", "tool"}}};

// A string, or the text of a list of parts.
std::string content_of(const Json& message, std::string_view key) {
  const Json* content = message.find(key);
  if (content == nullptr || !content->is_array()) return typed_field(message, key, "string").as_string();
  std::string text;
  for (const Json& part : content->as_array()) {
    if (!part.is_object() || typed_field(part, "type", "string").as_string() != "text")
      reject_record("a content part is not of type text");
    text += typed_field(part, "text", "string").as_string();
  }
  return text;
}

// Names that data sets have for what was thought before an answer; templates read the first two. Transformers fills
// them likewise.
constexpr std::array<std::string_view, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};

bool calls_tools(const Json& message) {
  const Json* calls = message.find("tool_calls");
  return calls != nullptr && calls->is_array() && !calls->as_array().empty();
}

// "train" or "weight" of a message; absent where neither says anything.
std::optional<bool> train_flag(const Json& message) {
  std::optional<bool> flag;
  if (const Json* train = message.find("train"); train != nullptr && !train->is_null()) {
    if (!train->is_bool()) reject_record(fmt::format("field \"train\" is {}, expected boolean", train->type_name()));
    flag = train->as_bool();
  }
  const Json* weight = message.find("weight");
  if (weight == nullptr || weight->is_null()) return flag;
  const bool known = weight->is_number() && (weight->as_double() == 0 || weight->as_double() == 1);
  if (!known)
    reject_record(fmt::format("field \"weight\" is {}; a message is trained on (1) or not (0)", weight->dump()));
  const bool weighs = weight->as_double() == 1;
  if (flag && *flag != weighs) reject_record("fields \"train\" and \"weight\" contradict each other");
  return weighs;
}

// The message with its flag in place of the fields that said it.
Json with_flag(Json message, const Json& given) {
  const std::optional<bool> flag = train_flag(given);
  for (const char* key : {"train", "weight"})
    if (message.find(key) != nullptr) message.erase(key);
  if (flag) message.set("train", *flag);
  return message;
}

// An array, or, as data sets of text columns have it, the text of one.
Json tools_of(const Json& record) {
  const Json* tools = record.find("tools");
  if (tools == nullptr || tools->is_null()) return {};
  Json list = *tools;
  if (tools->is_string()) {
    if (tools->as_string().find_first_not_of(" \t\r\n") == std::string::npos) return {};
    try {
      list = Json::parse(tools->as_string(), {.source = "tools"});
    } catch (const Error& error) {
      reject_record(error.what());
    }
  }
  if (!list.is_array()) reject_record(fmt::format("field \"tools\" is {}, expected array", list.type_name()));
  if (list.as_array().empty()) return {};
  for (std::size_t i = 0; i < list.as_array().size(); ++i)
    if (!list.as_array()[i].is_object())
      reject_record(fmt::format("tools[{}] is {}, expected object", i, list.as_array()[i].type_name()));
  return list;
}

// A call is {"function": {"name", "arguments"}}, or for some templates {"name", "arguments"}.
void check_calls(const Json& message) {
  const Json* calls = message.find("tool_calls");
  if (calls == nullptr) return;
  if (!calls->is_array()) reject_record(fmt::format("field \"tool_calls\" is {}, expected array", calls->type_name()));
  for (std::size_t i = 0; i < calls->as_array().size(); ++i) {
    const Json* call = &calls->as_array()[i];
    if (const Json* function = call->is_object() ? call->find("function") : nullptr; function != nullptr)
      call = function;
    const Json* name = call->is_object() ? call->find("name") : nullptr;
    if (name == nullptr || !name->is_string() || name->as_string().empty())
      reject_record(fmt::format("tool_calls[{}] names no function", i));
  }
}

Json message_of(const Json& given);

// Adds which message it is to an error about one.
Json::Array messages_of(const Json::Array& list) {
  Json::Array messages;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) reject_record(fmt::format("message {} is {}, expected object", i, list[i].type_name()));
    try {
      messages.push_back(message_of(list[i]));
    } catch (const Error& error) {
      reject_record(fmt::format("message {}: {}", i, error.what()));
    }
  }
  return messages;
}

Json openai_message(const Json& given) {
  (void)typed_field(given, "role", "string");
  Json message = given;
  const Json* content = given.find("content");
  const bool absent = content == nullptr || content->is_null();
  // A call needs no text beside it.
  if (absent && calls_tools(given))
    message.set("content", "");
  else
    message.set("content", content_of(given, "content"));
  // A column that other records use.
  for (const char* key : {"tool_calls", "name", "tool_call_id", "reasoning_content"})
    if (const Json* value = message.find(key); value != nullptr && value->is_null()) message.erase(key);
  check_calls(message);
  for (const std::string_view key : kReasoning) {
    const Json* reasoning = given.find(key);
    if (reasoning == nullptr || reasoning->is_null()) continue;
    message.set("reasoning_content", *reasoning);
    if (message.find("thinking") == nullptr) message.set("thinking", *reasoning);
    break;
  }
  return with_flag(std::move(message), given);
}

Json call_message(const std::string& text) {
  const Json call = Json::parse(text, {.source = "the call"});
  (void)typed_field(call, "name", "string");
  const Json* arguments = call.find("arguments");
  if (arguments == nullptr) reject_record("the call has no field \"arguments\"");
  Json function = Json::Object{{"name", call.at("name")}, {"arguments", *arguments}};
  Json::Array calls{Json::Object{{"type", "function"}, {"function", std::move(function)}}};
  return Json::Object{{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(calls)}};
}

Json sharegpt_message(const Json& given) {
  const std::string& from = typed_field(given, "from", "string").as_string();
  std::string content = content_of(given, "value");
  if (from == kCall) return with_flag(call_message(content), given);
  const auto known =
      std::ranges::find(kSpeakers, std::string_view(from), [](const auto& entry) { return entry.first; });
  // An unknown role is named, as it stands, by check_conversation().
  return with_flag(Json::Object{{"role", known != kSpeakers.end() ? known->second : std::string_view(from)},
                                {"content", std::move(content)}},
                   given);
}

// Data sets have messages of either form under either key.
Json message_of(const Json& given) {
  return given.find("from") != nullptr && given.find("role") == nullptr ? sharegpt_message(given)
                                                                        : openai_message(given);
}

void add_system(const Json& record, Json::Array& messages) {
  const Json* system = record.find("system");
  if (system == nullptr || system->is_null() || typed_field(record, "system", "string").as_string().empty()) return;
  messages.insert(messages.begin(), Json::Object{{"role", "system"}, {"content", *system}});
}

}  // namespace

void reject_record(const std::string& reason) {
  QUENCH_FAIL(ErrorCode::corrupt, "{}", reason);
}

const Json& typed_field(const Json& record, std::string_view key, std::string_view type) {
  const Json* value = record.find(key);
  if (value == nullptr) reject_record(fmt::format("no field \"{}\"", key));
  const bool matches = (type == "string" && value->is_string()) || (type == "array" && value->is_array());
  if (!matches) reject_record(fmt::format("field \"{}\" is {}, expected {}", key, value->type_name(), type));
  return *value;
}

Conversation openai_conversation(const Json& record) {
  return {messages_of(typed_field(record, "messages", "array").as_array()), tools_of(record)};
}

Conversation sharegpt_conversation(const Json& record) {
  Conversation conversation{messages_of(typed_field(record, "conversations", "array").as_array()), tools_of(record)};
  add_system(record, conversation.messages);
  return conversation;
}

Conversation alpaca_conversation(const Json& record) {
  std::string question = typed_field(record, "instruction", "string").as_string();
  const Json* input = record.find("input");
  if (input != nullptr && !input->is_null()) {
    const std::string& more = typed_field(record, "input", "string").as_string();
    if (!more.empty()) question += (question.empty() ? "" : "\n\n") + more;
  }
  Conversation conversation;
  conversation.messages.push_back(Json::Object{{"role", "user"}, {"content", std::move(question)}});
  conversation.messages.push_back(
      Json::Object{{"role", "assistant"}, {"content", typed_field(record, "output", "string")}});
  add_system(record, conversation.messages);
  return conversation;
}

void check_conversation(const Conversation& conversation) {
  bool answered = false, trained = false;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const Json& message = conversation.messages[i];
    const std::string& role = message.at("role").as_string();
    QUENCH_CHECK(std::ranges::find(kRoles, std::string_view(role)) != kRoles.end(), "message {}: role '{}'; known: {}",
                 i, role, fmt::join(kRoles, ", "));
    const bool silent = message.at("content").as_string().empty() && !calls_tools(message);
    QUENCH_CHECK(!silent || (role != "user" && role != "assistant"), "message {}: the {} says nothing", i, role);
    answered = answered || role == "assistant";
    trained = trained || (role == "assistant" && may_train(message));
  }
  QUENCH_CHECK(answered, "no assistant message: nothing to train on");
  QUENCH_CHECK(trained, "no assistant message with \"train\": true or \"weight\": 1: nothing to train on");
}

bool may_train(const Json& message) {
  const Json* flag = message.find("train");
  return flag == nullptr || flag->as_bool();
}

void require_assistant_targets(const Conversation& conversation) {
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const Json& message = conversation.messages[i];
    const std::string& role = message.at("role").as_string();
    QUENCH_CHECK(role == "assistant" || message.find("train") == nullptr || !may_train(message),
                 "message {}: says to train on it, but only the assistant's messages are trained on and its role is "
                 "'{}'; data.train_on (--train-on) all trains on every message",
                 i, role);
  }
}

std::vector<ChatMessage> plain_messages(const Conversation& conversation) {
  QUENCH_CHECK(conversation.tools.is_null(),
               "the conversation has tools, for which the written templates have no form; use the model's own template "
               "(data.chat_template, --chat-template: a .jinja file)");
  std::vector<ChatMessage> messages;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const Json& message = conversation.messages[i];
    QUENCH_CHECK(!calls_tools(message),
                 "message {} calls tools, for which the written templates have no form; use the model's own template "
                 "(data.chat_template, --chat-template: a .jinja file)",
                 i);
    messages.push_back({message.at("role").as_string(), message.at("content").as_string(), may_train(message)});
  }
  return messages;
}

}  // namespace quench
