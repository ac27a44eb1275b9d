#include "train/config/config_format_hint.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace quench {
namespace {

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t begin = line.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(kBlanks) - begin + 1);
}

// Length of a bare key in either language.
std::size_t key_length(std::string_view line) {
  const auto in_key = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  return static_cast<std::size_t>(std::find_if_not(line.begin(), line.end(), in_key) - line.begin());
}

std::optional<std::string_view> language_of(std::string_view line) {
  if (line.starts_with("---") || line.starts_with("%YAML") || line.starts_with("- ")) return "YAML";
  if (line.starts_with('[')) {  // table header; a JSON list of names has quotes
    const std::size_t brackets = line.starts_with("[[") ? 2 : 1;
    const std::size_t length = key_length(line.substr(brackets));
    const bool letter = length > 0 && std::isalpha(static_cast<unsigned char>(line[brackets])) != 0;
    if (letter && line.substr(brackets + length).starts_with(']')) return "TOML";
    return std::nullopt;
  }
  const std::size_t length = key_length(line);
  if (length == 0) return std::nullopt;
  const std::string_view rest = trimmed(line.substr(length));
  if (rest.starts_with('=')) return "TOML";
  if (rest == ":" || rest.starts_with(": ")) return "YAML";
  return std::nullopt;
}

}  // namespace

std::optional<ForeignSyntax> recognise_syntax(std::string_view text) {
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.starts_with('#')) continue;
    const auto language = language_of(line);
    if (!language) return std::nullopt;
    return ForeignSyntax{*language, number};
  }
  return std::nullopt;
}

}  // namespace quench
