#pragma once
// What may stand at the end of an unfinished command line, read off the program's own verbs, options and config keys.

#include <span>
#include <string>
#include <vector>

#include "apps/command.h"

namespace quench {

struct Completion {
  std::string word;  // the whole word; ends with '=' or '.' where more of it follows
  std::string help;  // one line, may be empty
};

struct Completions {
  std::vector<Completion> words;
  bool files = false;  // names of files fit too
};

// `words`: words after the program's name, the last one unfinished (empty where the cursor follows a blank).
[[nodiscard]] Completions complete_words(const Command& program, std::span<const std::string> words);

}  // namespace quench
