#pragma once
// Fields of chat records that have more than one form: flags that say what is trained on, tools and their calls.

#include <optional>
#include <string_view>
#include <vector>

#include "core/json/json.h"

namespace quench {

// Throws Error(corrupt): why one record cannot be used.
[[noreturn]] void reject_record(const std::string& reason);

// Whether a key is one of the names of such flags: "train", "loss", "weight", "masked", ...
[[nodiscard]] bool is_train_flag(std::string_view key);
// The flags of a message: true, 1 and false, 0, as boolean, number or text; null says nothing. Throws corrupt for other
// values, for flags that contradict each other, and for "mask" other than true, which data sets use in both senses.
[[nodiscard]] std::optional<bool> message_flag(const Json& message);
// The flags of a record. Values other than those above are no flags: "weight" may be that of a sample.
[[nodiscard]] std::optional<bool> record_flag(const Json& record);
[[nodiscard]] bool is_record_flag(const Json::Member& member);

// A list of objects under `key`, or the text of one, as data sets of text columns have it; null where there is none.
[[nodiscard]] Json object_list(const Json& record, std::string_view key);
// "tools", or the older "functions" in their form.
[[nodiscard]] Json tools_of(const Json& record);
// The message with the older "function_call" as "tool_calls" and the role "function" as "tool". Throws corrupt for a
// call that names no function and for arguments whose text is no JSON.
[[nodiscard]] Json with_tool_calls(Json message);
[[nodiscard]] bool calls_tools(const Json& message);
// The message with the arguments of its calls as objects, where they are the text of one.
[[nodiscard]] Json with_object_arguments(Json message);

}  // namespace quench
