#pragma once
// The command line of `quench run`: the launcher's own words, then those of what it launches.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace quench {

// The words that the parser is to see: all of them, but of `run` only its own. The others are kept for the verb.
[[nodiscard]] std::vector<std::string> split_launched_words(const CLI::App& program, std::vector<std::string> words);

}  // namespace quench
