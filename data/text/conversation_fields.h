#pragma once
// Chat record fields with several spellings: training flags, tools and tool calls.

#include <optional>
#include <string_view>
#include <vector>

#include "core/json/json.h"

namespace quench {

[[noreturn]] void reject_record(const std::string& reason);

// True for the keys of training flags: "train", "loss", "weight", "masked", ...
[[nodiscard]] bool is_train_flag(std::string_view key);
// Training flag of a message: true, 1 and false, 0, as boolean, number or text; null: unset. Throws corrupt for other
// values, contradicting flags, and "mask" other than true, whose sense differs between data sets.
[[nodiscard]] std::optional<bool> message_flag(const Json& message);
// Training flag of a record. Other values than above are ignored: "weight" may be a sample weight.
[[nodiscard]] std::optional<bool> record_flag(const Json& record);
[[nodiscard]] bool is_record_flag(const Json::Member& member);

// List of objects under `key`, or parsed from its JSON text (text columns); null if absent.
[[nodiscard]] Json object_list(const Json& record, std::string_view key);
[[nodiscard]] Json tools_of(const Json& record);
// Message with legacy "function_call" converted to "tool_calls", and role "function" to "tool". Throws corrupt for a
// call without a function name, and arguments that are not JSON.
[[nodiscard]] Json with_tool_calls(Json message);
[[nodiscard]] bool calls_tools(const Json& message);
// Message with call arguments parsed from JSON text.
[[nodiscard]] Json with_object_arguments(Json message);

}  // namespace quench
