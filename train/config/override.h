#pragma once
// Command-line overrides of config keys.
//
//   --section.key=value      sets; the value may contain '='
//   --section.key value      the same; a value that starts with "--" needs the form above
//   --section.flag           true, for keys that hold a boolean; --no-section.flag is false
//   --unset=section.key      removes what the file says of a key, several (a,b) or a section: the default applies
//   ~section.key, ~section   the same; some shells expand an unquoted ~
//
// A value is read by the type of its key. null unsets a key that may be unset. Lists are a,b,c or JSON ([...]). Strings
// need no quotes; a value in double quotes is a JSON string, so that "\"null\"" is the four letters.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "train/config/config_issue.h"

namespace quench {

// Arguments of a verb that takes a config: its plain words (the config's name), and the overrides with their values.
struct SplitArguments {
  std::vector<std::string> words;
  std::vector<std::string> overrides;
};
[[nodiscard]] SplitArguments split_arguments(std::span<const std::string> arguments);

// Applies `arguments` in order to `document` and returns what is wrong with them: unknown keys, missing values, words
// that are no override. Records for each key set the argument that set it.
std::vector<ConfigIssue> apply_overrides(Json& document, std::span<const std::string> arguments,
                                         std::map<std::string, std::string>& origins);

}  // namespace quench
