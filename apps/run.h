#pragma once
// Command line of `quench run`: launcher options, then the launched command.

#include <string>
#include <vector>

#include "apps/command.h"

namespace quench {

// Words for the parser: all, except for `run`, where the launched command's words are kept for the verb.
[[nodiscard]] std::vector<std::string> split_launched_words(const Command& program, std::vector<std::string> words);

}  // namespace quench
