#pragma once
// The command line of `quench run`: the launcher's own words, then those of what it launches.

#include <string>
#include <vector>

#include "apps/command.h"

namespace quench {

// The words that the parser is to see: all of them, but of `run` only its own. The others are kept for the verb.
[[nodiscard]] std::vector<std::string> split_launched_words(const Command& program, std::vector<std::string> words);

}  // namespace quench
