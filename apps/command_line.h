#pragma once
// Before a verb's own parsing.

#include <string>
#include <vector>

#include "apps/command.h"

namespace quench {

// With the nearest name and the list of all. Empty if the name is known or absent.
[[nodiscard]] std::string unknown_verb(const Command& app, const std::vector<std::string>& words);

}  // namespace quench
