#pragma once
// Words of the command line before a verb's own parsing.

#include <string>
#include <vector>

#include "apps/command.h"

namespace quench {

// "help VERB" as "VERB --help", "help help" as "--help"; other words unchanged.
[[nodiscard]] std::vector<std::string> replace_help_word(std::vector<std::string> words);

// Without a leading "--".
[[nodiscard]] std::vector<std::string> skip_separator(std::vector<std::string> words);

// Message for an option of a verb before it. Empty: there is none.
[[nodiscard]] std::string option_before_verb(const Command& app, const std::vector<std::string>& words);

// With the nearest name and the list of all. Empty if the name is known or absent.
[[nodiscard]] std::string unknown_verb(const Command& app, const std::vector<std::string>& words);

// Last character of a protected word. CLI11 reads "[a,b]" as the two values "a" and "b" of a list.
inline constexpr char kProtected = '\x1F';

// Values as they are written: words that end like "[...]" get kProtected as a further character. Values of options with
// a delimiter are not protected.
void protect_brackets(Command command, std::vector<std::string>& words);
[[nodiscard]] std::string unprotected(std::string word);

// Integer without leading zeros and without a plus.
[[nodiscard]] std::string plain_integer(std::string word);

}  // namespace quench
