#pragma once
// Candidates from verbs, options and config keys.

#include <span>
#include <string>
#include <vector>

#include "apps/command.h"

namespace quench {

struct Completion {
  std::string word;  // ends with '=' or '.' if incomplete
  std::string help;  // one line, or empty
};

struct Completions {
  std::vector<Completion> words;
  bool files = false;  // also file names
};

// `words`: after the program's name, the last one incomplete (empty after a blank).
[[nodiscard]] Completions complete_words(const Command& program, std::span<const std::string> words);

}  // namespace quench
