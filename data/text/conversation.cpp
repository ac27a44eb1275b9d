#include "data/text/conversation.h"

#include <algorithm>
#include <array>
#include <optional>
#include <ranges>
#include <utility>

#include "core/system/check.h"

namespace quench {
namespace {

// "environment": results of calls in OLMo 3's template.
constexpr std::array<std::string_view, 6> kRoles = {"system", "developer", "user", "assistant", "tool", "environment"};

// ShareGPT. A function call is an assistant turn.
constexpr std::string_view kCall = "function_call";
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kSpeakers = {{{"human", "user"},
                                                                                      {"user", "user"},
                                                                                      {"gpt", "assistant"},
                                                                                      {"chatgpt", "assistant"},
                                                                                      {"model", "assistant"},
                                                                                      {"assistant", "assistant"},
                                                                                      {kCall, "assistant"},
                                                                                      {"system", "system"},
                                                                                      {"developer", "developer"},
                                                                                      {"tool", "tool"},
                                                                                      {"ipython", "tool"},
                                                                                      {"function_response", "tool"},
                                                                                      {"environment", "environment"},
                                                                                      {"observation", "tool"}}};

// Parts are concatenated.
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

// Templates read the first two. Filled as in Transformers.
constexpr std::array<std::string_view, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};

// In place of the flag fields.
Json with_flag(Json message, const Json& given) {
  const std::optional<bool> flag = message_flag(given);
  std::vector<std::string> names;
  for (const auto& [key, value] : message.as_object())
    if (is_train_flag(key)) names.push_back(key);
  for (const std::string& name : names) message.erase(name);
  if (flag) message.set("train", *flag);
  return message;
}

// OLMo 3: calls as text, which its template writes as it is.
bool has_written_calls(const Json& message) {
  const Json* calls = message.find("function_calls");
  return calls != nullptr && calls->is_string() && !calls->as_string().empty();
}

Json message_of(const Json& given);

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
  Json message = with_tool_calls(given);
  const Json* content = given.find("content");
  const bool absent = content == nullptr || content->is_null();
  // No content needed.
  const bool thinks = std::ranges::any_of(kReasoning, [&](std::string_view key) {
    const Json* reasoning = given.find(key);
    return reasoning != nullptr && !reasoning->is_null();
  });
  if (absent && (calls_tools(message) || has_written_calls(message) || thinks))
    message.set("content", Json());
  else
    message.set("content", content_of(given, "content"));
  // Null: columns of other records.
  for (const char* key : {"name", "tool_call_id", "reasoning_content"})
    if (const Json* value = message.find(key); value != nullptr && value->is_null()) message.erase(key);
  for (const std::string_view key : kReasoning) {
    const Json* reasoning = given.find(key);
    if (reasoning == nullptr || reasoning->is_null()) continue;
    message.set("reasoning_content", *reasoning);
    if (message.find("thinking") == nullptr) message.set("thinking", *reasoning);
    break;
  }
  return with_flag(std::move(message), given);
}

// A call, or a list of them.
void add_calls(const Json& given, Json::Array& calls) {
  if (given.is_array()) {
    for (const Json& call : given.as_array()) add_calls(call, calls);
    return;
  }
  if (!given.is_object()) reject_record(fmt::format("the call is {}, expected object or array", given.type_name()));
  (void)typed_field(given, "name", "string");
  const Json* arguments = given.find("arguments");
  if (arguments == nullptr) reject_record("the call has no field \"arguments\"");
  Json function = Json::Object{{"name", given.at("name")}, {"arguments", *arguments}};
  calls.push_back(Json::Object{{"type", "function"}, {"function", std::move(function)}});
}

// Moves calls between marks from `text` to `calls`.
void take_marked_calls(std::string& text, Json::Array& calls) {
  constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
  for (std::size_t begin = text.find(kOpen); begin != std::string::npos; begin = text.find(kOpen)) {
    const std::size_t inside = begin + kOpen.size(), end = text.find(kClose, inside);
    if (end == std::string::npos) reject_record(fmt::format("{} without {}", kOpen, kClose));
    add_calls(Json::parse(text.substr(inside, end - inside), {.source = "the call"}), calls);
    text.erase(begin, end + kClose.size() - begin);
  }
}

// JSON of the calls; with text before them, such as a thought, from the first bracket after which JSON follows.
void take_calls(std::string& text, Json::Array& calls) {
  constexpr std::string_view kThoughtEnd = "</think>", kBrackets = "[{";
  const std::size_t thought = text.find(kThoughtEnd), from = thought != std::string::npos ? thought : 0;
  const std::size_t first = text.find_first_of(kBrackets, from);
  for (std::size_t at = first; at != std::string::npos; at = text.find_first_of(kBrackets, at + 1)) {
    Json given;
    try {
      given = Json::parse(std::string_view(text).substr(at), {.source = "the call"});
    } catch (const Error&) {
      continue;
    }
    add_calls(given, calls);
    text.resize(at);
    return;
  }
  // For its message.
  (void)Json::parse(std::string_view(text).substr(first != std::string::npos ? first : from), {.source = "the call"});
  reject_record("no call");
}

// Text outside the calls is the content.
Json call_message(std::string text) {
  Json::Array calls;
  take_marked_calls(text, calls);
  if (calls.empty()) take_calls(text, calls);
  if (calls.empty()) reject_record("an empty list of calls");
  const bool silent = text.find_first_not_of(" \t\r\n") == std::string::npos;
  return Json::Object{
      {"role", "assistant"}, {"content", silent ? Json() : Json(std::move(text))}, {"tool_calls", std::move(calls)}};
}

Json sharegpt_message(const Json& given) {
  const std::string& from = typed_field(given, "from", "string").as_string();
  std::string content = content_of(given, "value");
  const auto known =
      std::ranges::find(kSpeakers, std::string_view(from), [](const auto& entry) { return entry.first; });
  if (known == kSpeakers.end())
    reject_record(fmt::format("\"from\" is \"{}\"; known: {}", from, fmt::join(kSpeakers | std::views::keys, ", ")));
  Json message = from == kCall ? call_message(std::move(content))
                               : Json(Json::Object{{"role", known->second}, {"content", std::move(content)}});
  for (const auto& [key, value] : given.as_object())
    if (key != "from" && key != "value" && message.find(key) == nullptr) message.set(key, value);
  return with_flag(std::move(message), given);
}

// Under either key.
Json message_of(const Json& given) {
  return given.find("from") != nullptr && given.find("role") == nullptr ? sharegpt_message(given)
                                                                        : openai_message(given);
}

void add_system(const Json& record, Json::Array& messages) {
  const Json* system = record.find("system");
  if (system == nullptr || system->is_null() || typed_field(record, "system", "string").as_string().empty()) return;
  const Json* first = messages.empty() ? nullptr : &messages.front();
  if (first != nullptr && (first->at("role") == Json("system") || first->at("role") == Json("developer"))) {
    if (first->at("content") == *system) return;
    reject_record("field \"system\" and the system message at the beginning differ; keep one");
  }
  messages.insert(messages.begin(), Json::Object{{"role", "system"}, {"content", *system}});
}

// Object, or JSON text of one.
Json::Object kwargs_of(const Json& record) {
  const Json* given = record.find("chat_template_kwargs");
  if (given == nullptr || given->is_null()) return {};
  Json kwargs = given->is_string() ? Json::parse(given->as_string(), {.source = "chat_template_kwargs"}) : *given;
  if (!kwargs.is_object())
    reject_record(fmt::format("field \"chat_template_kwargs\" is {}, expected object", kwargs.type_name()));
  if (kwargs.find("messages") != nullptr) reject_record("chat_template_kwargs may not replace the messages");
  return kwargs.as_object();
}

// Except `own`.
void add_columns(const Json& record, std::initializer_list<std::string_view> own, Conversation& conversation) {
  add_system(record, conversation.messages);
  conversation.tools = tools_of(record);
  conversation.documents = object_list(record, "documents");
  conversation.template_kwargs = kwargs_of(record);
  constexpr std::array<std::string_view, 5> kRead = {"system", "tools", "functions", "documents",
                                                     "chat_template_kwargs"};
  for (const auto& [key, value] : record.as_object())
    if (!value.is_null() && std::ranges::find(kRead, std::string_view(key)) == kRead.end() &&
        std::ranges::find(own, std::string_view(key)) == own.end())
      conversation.columns.emplace_back(key, value);
}

// [["question", "answer"], ...]
void add_history(const Json& record, Json::Array& messages) {
  const Json* history = record.find("history");
  if (history == nullptr || history->is_null()) return;
  const Json::Array& turns = typed_field(record, "history", "array").as_array();
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const Json& turn = turns[i];
    if (!turn.is_array() || turn.as_array().size() != 2 || !turn.as_array()[0].is_string() ||
        !turn.as_array()[1].is_string())
      reject_record(fmt::format("history[{}] is not a pair of texts (question, answer)", i));
    messages.push_back(Json::Object{{"role", "user"}, {"content", turn.as_array()[0]}});
    messages.push_back(Json::Object{{"role", "assistant"}, {"content", turn.as_array()[1]}});
  }
}

}  // namespace

const Json& typed_field(const Json& record, std::string_view key, std::string_view type) {
  const Json* value = record.find(key);
  if (value == nullptr) reject_record(fmt::format("no field \"{}\"", key));
  const bool matches = (type == "string" && value->is_string()) || (type == "array" && value->is_array());
  if (!matches) reject_record(fmt::format("field \"{}\" is {}, expected {}", key, value->type_name(), type));
  return *value;
}

Conversation openai_conversation(const Json& record) {
  Conversation conversation{messages_of(typed_field(record, "messages", "array").as_array())};
  add_columns(record, {"messages"}, conversation);
  return conversation;
}

Conversation sharegpt_conversation(const Json& record) {
  Conversation conversation{messages_of(typed_field(record, "conversations", "array").as_array())};
  add_columns(record, {"conversations"}, conversation);
  return conversation;
}

Json::Array question_messages(const Json& record, std::string_view key) {
  std::string question;
  for (const std::string_view part : {key, std::string_view("input")}) {
    const Json* text = record.find(part);
    if (text == nullptr || text->is_null()) continue;
    const std::string& more = typed_field(record, part, "string").as_string();
    if (!more.empty()) question += (question.empty() ? "" : "\n\n") + more;
    if (key == "input") break;
  }
  Json::Array messages;
  add_history(record, messages);
  messages.push_back(Json::Object{{"role", "user"}, {"content", std::move(question)}});
  return messages;
}

namespace {

Conversation question_and_answer(const Json& record, std::string_view question, std::string_view answer) {
  (void)typed_field(record, question, "string");
  Conversation conversation{question_messages(record, question)};
  conversation.messages.push_back(
      Json::Object{{"role", "assistant"}, {"content", typed_field(record, answer, "string")}});
  add_columns(record, {question, "input", answer, "history"}, conversation);
  return conversation;
}

}  // namespace

Conversation alpaca_conversation(const Json& record) {
  return question_and_answer(record, "instruction", "output");
}

Conversation query_conversation(const Json& record) {
  return question_and_answer(record, "query", "response");
}

Conversation completion_conversation(const Json& record) {
  Conversation conversation{messages_of(typed_field(record, "prompt", "array").as_array())};
  conversation.prompt_messages = conversation.messages.size();
  const Json::Array& completion = typed_field(record, "completion", "array").as_array();
  if (completion.empty()) reject_record("the completion is empty");
  for (Json& message : messages_of(completion)) conversation.messages.push_back(std::move(message));
  const std::size_t messages = conversation.messages.size();
  add_columns(record, {"prompt", "completion"}, conversation);
  conversation.prompt_messages += conversation.messages.size() - messages;
  return conversation;
}

void check_conversation(const Conversation& conversation) {
  bool answered = false, trained = false;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const Json& message = conversation.messages[i];
    const std::string& role = message.at("role").as_string();
    QUENCH_CHECK(std::ranges::find(kRoles, std::string_view(role)) != kRoles.end(), "message {}: role '{}'; known: {}",
                 i, role, fmt::join(kRoles, ", "));
    const Json* thought = message.find("reasoning_content");
    const bool silent = content_text(message).empty() && !calls_tools(message) && !has_written_calls(message) &&
                        (thought == nullptr || !thought->is_string() || thought->as_string().empty());
    QUENCH_CHECK(!silent || (role != "user" && role != "assistant"), "message {}: the {}'s message is empty", i, role);
    answered = answered || role == "assistant";
    trained = trained || (role == "assistant" && may_train(message));
  }
  QUENCH_CHECK(answered, "no assistant message: nothing to train on");
  QUENCH_CHECK(trained, "no assistant message is a target: flags (\"train\", \"weight\", ...) exclude all of them");
}

std::string_view content_text(const Json& message) {
  const Json& content = message.at("content");
  return content.is_null() ? std::string_view() : std::string_view(content.as_string());
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
                 "message {}: a flag asks to train on it, but its role is '{}' and only assistant messages are "
                 "targets; data.train_on (--train-on) all trains on every message",
                 i, role);
  }
}

std::vector<ChatMessage> plain_messages(const Conversation& conversation) {
  QUENCH_CHECK(conversation.tools.is_null() || conversation.tools.as_array().empty(),
               "the conversation has tools, which the built-in templates do not support; use the model's own template "
               "(data.chat_template, --chat-template: a .jinja file)");
  std::vector<ChatMessage> messages;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const Json& message = conversation.messages[i];
    QUENCH_CHECK(!calls_tools(message),
                 "message {} calls tools, which the built-in templates do not support; use the model's own template "
                 "(data.chat_template, --chat-template: a .jinja file)",
                 i);
    messages.push_back({message.at("role").as_string(), std::string(content_text(message)), may_train(message)});
  }
  return messages;
}

}  // namespace quench
