#pragma once
// Command-line overrides of config keys.
//
//   --section.key=value      the value may contain '='
//   --section.key value      the same; not for values that start with "--"
//   --section.flag           true; --no-section.flag is false
//   --unset=section.key      resets a key, several (a,b) or a section to the default
//   ~section.key, ~section   the same; some shells expand an unquoted ~
//
// Values are parsed by the key's type. null unsets an optional key. Lists: a,b,c or JSON ([...]). A string in double
// quotes is a JSON string: "\"null\"" is the text null.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "train/config/config_issue.h"

namespace quench {

// Positional words, and overrides with values.
struct SplitArguments {
  std::vector<std::string> words;
  std::vector<std::string> overrides;
};
[[nodiscard]] SplitArguments split_arguments(std::span<const std::string> arguments);

// Applies `arguments` in order; issues: unknown keys, missing values, stray words. Records the argument of each key.
std::vector<ConfigIssue> apply_overrides(Json& document, std::span<const std::string> arguments,
                                         std::map<std::string, std::string>& origins);

}  // namespace quench
