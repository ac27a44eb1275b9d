#pragma once
// Words of the command line before a verb's own parsing.

#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
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

// Decimal numbers of the whole word alone: CLI11 reads 010 as 8 and -1 as the largest unsigned number.
template <class T>
[[nodiscard]] bool is_number(std::string_view word) {
  if (word.starts_with('+')) word.remove_prefix(1);
  T number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(number)) return false;
  return error == std::errc() && end == word.data() + word.size();
}

// Integer without leading zeros and without a plus.
[[nodiscard]] std::string plain_integer(std::string word);

}  // namespace quench
