#pragma once
// Chat fields with several spellings.

#include <optional>
#include <string_view>
#include <vector>

#include "core/json/json.h"

namespace quench {

[[noreturn]] void reject_record(const std::string& reason);

// true and 1, false and 0, also as the texts true, 1, 1.0 and false, 0, 0.0 in any case, with `words` yes and no;
// nullopt for others.
[[nodiscard]] std::optional<bool> truth(const Json& value, bool words = false);
// "train", "loss", "weight", "masked", ...
[[nodiscard]] bool is_train_flag(std::string_view key);
// true, 1 and false, 0, as boolean, number or text; null: unset. Throws corrupt for other values, contradictions, and
// "mask" other than true, whose sense differs between data sets.
[[nodiscard]] std::optional<bool> message_flag(const Json& message);
// Other values are ignored: "weight" may be a sample weight.
[[nodiscard]] std::optional<bool> record_flag(const Json& record);
[[nodiscard]] bool is_record_flag(const Json::Member& member);

// Also as JSON text (text columns); null if absent.
[[nodiscard]] Json object_list(const Json& record, std::string_view key);
// Null if empty, too: templates ask whether there are tools by `is not none`.
[[nodiscard]] Json tools_of(const Json& record);
// "function_call" becomes "tool_calls", an empty list of which is left out; roles "function" and "ipython" become
// "tool". Throws corrupt for a call without a function name, and arguments that are not JSON.
[[nodiscard]] Json with_tool_calls(Json message);
[[nodiscard]] bool calls_tools(const Json& message);
// Parses call arguments in JSON text.
[[nodiscard]] Json with_object_arguments(Json message);

}  // namespace quench
