#include "data/text/conversation_fields.h"

#include <algorithm>
#include <array>

#include "core/system/check.h"

namespace quench {
namespace {

enum class FlagSense : std::uint8_t { trains, masks, either };
struct FlagName {
  std::string_view key;
  FlagSense sense;
};
// Flags of training programs and data sets.
constexpr std::array<FlagName, 19> kFlags = {{{"train", FlagSense::trains},
                                              {"training", FlagSense::trains},
                                              {"trainable", FlagSense::trains},
                                              {"is_trainable", FlagSense::trains},
                                              {"is_training", FlagSense::trains},
                                              {"should_train", FlagSense::trains},
                                              {"train_on", FlagSense::trains},
                                              {"learn", FlagSense::trains},
                                              {"loss", FlagSense::trains},
                                              {"compute_loss", FlagSense::trains},
                                              {"calculate_loss", FlagSense::trains},
                                              {"loss_mask", FlagSense::trains},
                                              {"loss_weight", FlagSense::trains},
                                              {"loss_scale", FlagSense::trains},
                                              {"weight", FlagSense::trains},
                                              {"masked", FlagSense::masks},
                                              {"ignore_loss", FlagSense::masks},
                                              {"no_loss", FlagSense::masks},
                                              {"mask", FlagSense::either}}};

const FlagName* flag_name(std::string_view key) {
  const auto found = std::ranges::find(kFlags, key, &FlagName::key);
  return found != kFlags.end() ? &*found : nullptr;
}

bool is_blank(const Json& value) {
  return value.is_null() || (value.is_string() && value.as_string().find_first_not_of(" \t\r\n") == std::string::npos);
}

Json parsed(std::string_view text, std::string_view name) {
  try {
    return Json::parse(text, {.source = name});
  } catch (const Error& error) {
    reject_record(error.what());
  }
}

Json wrapped_function(const Json& function) {
  return Json::Object{{"type", "function"}, {"function", function}};
}

// {"function": {"name", "arguments"}}, or {"name", "arguments"}.
void check_call(const Json& given, std::size_t i) {
  const Json* call = &given;
  if (const Json* function = call->is_object() ? call->find("function") : nullptr; function != nullptr) call = function;
  const Json* name = call->is_object() ? call->find("name") : nullptr;
  if (name == nullptr || !name->is_string() || name->as_string().empty())
    reject_record(fmt::format("tool_calls[{}] names no function", i));
  const Json* arguments = call->find("arguments");
  if (arguments == nullptr || !arguments->is_string() || is_blank(*arguments)) return;
  const std::string source = fmt::format("the arguments of tool_calls[{}]", i);
  if (const Json value = parsed(arguments->as_string(), source); !value.is_object())
    reject_record(fmt::format("{} are the JSON text of {}, expected object", source, value.type_name()));
}

}  // namespace

void reject_record(const std::string& reason) {
  QUENCH_FAIL(ErrorCode::corrupt, "{}", reason);
}

std::optional<bool> truth(const Json& value, bool words) {
  if (value.is_bool()) return value.as_bool();
  if (value.is_number()) {
    const double number = value.as_double();
    if (number == 0 || number == 1) return number == 1;
  }
  if (!value.is_string()) return std::nullopt;
  std::string text;  // in a spreadsheet's words
  for (const char c : value.as_string()) text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (text == "true" || text == "1" || text == "1.0" || (words && text == "yes")) return true;
  if (text == "false" || text == "0" || text == "0.0" || (words && text == "no")) return false;
  return std::nullopt;
}

bool is_train_flag(std::string_view key) {
  return flag_name(key) != nullptr;
}

std::optional<bool> message_flag(const Json& message) {
  std::optional<bool> flag;
  std::string_view first;
  for (const auto& [key, value] : message.as_object()) {
    const FlagName* name = flag_name(key);
    if (name == nullptr || is_blank(value)) continue;
    const std::optional<bool> given = truth(value);
    // Masked from the loss, or included by a loss mask.
    if (name->sense == FlagSense::either && !(value.is_bool() && *given))
      reject_record(
          "field \"mask\" is ambiguous (data sets use it for both trained and masked); rename it to \"train\" or "
          "\"masked\"");
    if (!given) reject_record(fmt::format("field \"{}\" is {}; expected true, 1, false or 0", key, value.dump()));
    const bool trains = *given == (name->sense == FlagSense::trains);
    if (flag && *flag != trains)
      reject_record(fmt::format("fields \"{}\" and \"{}\" contradict each other", first, key));
    flag = trains;
    first = key;
  }
  return flag;
}

bool is_record_flag(const Json::Member& member) {
  const FlagName* name = flag_name(member.first);
  return name != nullptr && name->sense != FlagSense::either && truth(member.second).has_value();
}

std::optional<bool> record_flag(const Json& record) {
  std::optional<bool> flag;
  for (const Json::Member& member : record.as_object()) {
    if (!is_record_flag(member)) continue;
    const bool trains = *truth(member.second) == (flag_name(member.first)->sense == FlagSense::trains);
    flag = flag.value_or(true) && trains;
  }
  return flag;
}

Json object_list(const Json& record, std::string_view key) {
  const Json* given = record.find(key);
  if (given == nullptr || is_blank(*given)) return {};
  Json list = given->is_string() ? parsed(given->as_string(), key) : *given;
  if (!list.is_array()) reject_record(fmt::format("field \"{}\" is {}, expected array", key, list.type_name()));
  Json::Array objects;
  for (std::size_t i = 0; i < list.as_array().size(); ++i) {
    const Json& item = list.as_array()[i];
    objects.push_back(item.is_string() && item.as_string().starts_with("{")
                          ? parsed(item.as_string(), fmt::format("{}[{}]", key, i))
                          : item);
    if (!objects.back().is_object())
      reject_record(fmt::format("{}[{}] is {}, expected object", key, i, objects.back().type_name()));
  }
  return objects;
}

Json tools_of(const Json& record) {
  Json tools = object_list(record, "tools");
  const Json functions = object_list(record, "functions");
  const bool no_tools = tools.is_null() || tools.as_array().empty();
  if (functions.is_null() || functions.as_array().empty()) return no_tools ? Json() : tools;
  if (!no_tools) reject_record("fields \"tools\" and \"functions\" are both present; keep one");
  Json::Array list;
  for (const Json& function : functions.as_array()) list.push_back(wrapped_function(function));
  return list;
}

bool calls_tools(const Json& message) {
  const Json* calls = message.find("tool_calls");
  return calls != nullptr && calls->is_array() && !calls->as_array().empty();
}

Json with_tool_calls(Json message) {
  if (const Json* call = message.find("function_call"); call != nullptr) {
    const Json given = *call;
    message.erase("function_call");
    if (!is_blank(given)) {
      if (calls_tools(message)) reject_record("fields \"tool_calls\" and \"function_call\" are both present; keep one");
      const Json function = given.is_string() ? parsed(given.as_string(), "function_call") : given;
      if (message.find("tool_calls") != nullptr) message.erase("tool_calls");
      message.set("tool_calls", Json::Array{wrapped_function(function)});
    }
  }
  if (const Json* role = message.find("role");
      role != nullptr && (*role == Json("function") || *role == Json("ipython")))
    message.set("role", "tool");
  const Json* calls = message.find("tool_calls");
  if (calls == nullptr) return message;
  if (is_blank(*calls)) {
    message.erase("tool_calls");
    return message;
  }
  if (calls->is_string() && calls->as_string().starts_with("["))
    message.set("tool_calls", parsed(std::string(calls->as_string()), "tool_calls"));
  calls = message.find("tool_calls");
  if (!calls->is_array()) reject_record(fmt::format("field \"tool_calls\" is {}, expected array", calls->type_name()));
  for (std::size_t i = 0; i < calls->as_array().size(); ++i) check_call(calls->as_array()[i], i);
  // Templates ask for the key (Llama 3.1, Hermes).
  if (calls->as_array().empty()) message.erase("tool_calls");
  return message;
}

Json with_object_arguments(Json message) {
  if (!calls_tools(message)) return message;
  const auto converted = [](Json call) {
    const Json* arguments = call.find("arguments");
    if (arguments == nullptr || !arguments->is_string()) return call;
    const std::string text = arguments->as_string();
    call.set("arguments", is_blank(text) ? Json::object() : parsed(text, "arguments"));
    return call;
  };
  Json::Array calls;
  for (const Json& given : message.at("tool_calls").as_array()) {
    Json call = converted(given);
    if (const Json* function = call.find("function"); function != nullptr && function->is_object())
      call.set("function", converted(*function));
    calls.push_back(std::move(call));
  }
  message.set("tool_calls", std::move(calls));
  return message;
}

}  // namespace quench
