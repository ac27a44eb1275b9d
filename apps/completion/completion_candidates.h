#pragma once
// Shell completion candidates from the program's verbs, options and config keys.

#include <span>
#include <string>
#include <vector>

#include "apps/command.h"

namespace quench {

struct Completion {
  std::string word;  // whole word; ends with '=' or '.' if incomplete
  std::string help;  // one line, may be empty
};

struct Completions {
  std::vector<Completion> words;
  bool files = false;  // file names are candidates too
};

// `words`: the words after the program's name, the last one incomplete (empty after a blank).
[[nodiscard]] Completions complete_words(const Command& program, std::span<const std::string> words);

}  // namespace quench
