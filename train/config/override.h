#pragma once
// Command-line overrides of config keys.
//
//   --section.key=value      sets the key; the value may contain '='
//   --section.key value      the same; not for values that start with "--"
//   --section.flag           true, for boolean keys; --no-section.flag is false
//   --unset=section.key      resets a key, several (a,b) or a section to the default
//   ~section.key, ~section   the same; some shells expand an unquoted ~
//
// Values are parsed by the key's type. null unsets an optional key. Lists: a,b,c or JSON ([...]). Strings need no
// quotes; a value in double quotes is a JSON string, so that "\"null\"" is the text null.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "train/config/config_issue.h"

namespace quench {

// Arguments of a command that takes a config: positional words, and overrides with values.
struct SplitArguments {
  std::vector<std::string> words;
  std::vector<std::string> overrides;
};
[[nodiscard]] SplitArguments split_arguments(std::span<const std::string> arguments);

// Applies `arguments` in order to `document`; returns unknown keys, missing values and stray words as issues. Records
// the argument that set each key.
std::vector<ConfigIssue> apply_overrides(Json& document, std::span<const std::string> arguments,
                                         std::map<std::string, std::string>& origins);

}  // namespace quench
