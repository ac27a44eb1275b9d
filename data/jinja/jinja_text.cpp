#include "data/jinja/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "data/tokenizer/text/code_points.h"
#include "data/tokenizer/text/unicode.h"

namespace quench::jinja {
namespace {

std::size_t length_at(std::string_view text, std::size_t at) {
  return std::max<std::size_t>(utf8_sequence_length(text, at), 1);
}

bool is_space(std::string_view character) {
  return utf8_sequence_length(character, 0) > 0 && is_python_space(decode_code_point(character, 0));
}

}  // namespace

std::size_t character_count(std::string_view text) noexcept {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); i += length_at(text, i)) ++count;
  return count;
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  for (std::size_t i = 0; i < text.size(); i += characters.back().size())
    characters.push_back(text.substr(i, length_at(text, i)));
  return characters;
}

std::string_view strip(std::string_view text, std::string_view characters, StripSide side) {
  const auto goes = [&](std::string_view character) {
    return characters.empty() ? is_space(character) : characters.find(character) != std::string_view::npos;
  };
  std::size_t begin = 0, end = 0;  // end: of the last character that stays
  bool inside = side == StripSide::right;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = length_at(text, i);
    const bool stays = !goes(text.substr(i, length));
    if (stays && !inside) {
      begin = i;
      inside = true;
    }
    i += length;
    if (stays) end = i;
  }
  if (side == StripSide::left) end = inside ? text.size() : 0;
  return end <= begin ? std::string_view() : text.substr(begin, end - begin);
}

std::vector<std::string> split(std::string_view text, std::string_view separator, std::int64_t limit) {
  std::vector<std::string> parts;
  if (separator.empty()) {
    std::string_view rest = strip(text, {}, StripSide::left);
    while (!rest.empty()) {
      if (limit >= 0 && static_cast<std::int64_t>(parts.size()) == limit) {
        parts.emplace_back(rest);
        break;
      }
      std::size_t end = 0;
      while (end < rest.size() && !is_space(rest.substr(end, length_at(rest, end)))) end += length_at(rest, end);
      parts.emplace_back(rest.substr(0, end));
      rest = strip(rest.substr(end), {}, StripSide::left);
    }
    return parts;
  }
  std::size_t begin = 0;
  while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
    const std::size_t end = text.find(separator, begin);
    if (end == std::string_view::npos) break;
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t limit) {
  std::string out;
  std::int64_t done = 0;
  const auto allowed = [&] { return limit < 0 || done < limit; };
  if (from.empty()) {  // before each character and at the end
    for (const std::string_view character : characters_of(text)) {
      if (allowed()) {
        out += to;
        ++done;
      }
      out += character;
    }
    if (allowed()) out += to;
    return out;
  }
  std::size_t begin = 0;
  for (; allowed(); ++done) {
    const std::size_t end = text.find(from, begin);
    if (end == std::string_view::npos) break;
    out += text.substr(begin, end - begin);
    out += to;
    begin = end + from.size();
  }
  out += text.substr(begin);
  return out;
}

std::string with_case(std::string_view text, LetterCase letter_case) {
  std::string out;
  bool first = true;  // of the text, or of a word
  for (const std::string_view character : characters_of(text)) {
    if (utf8_sequence_length(character, 0) == 0) {
      out += character;
      continue;
    }
    const auto code = static_cast<utf8proc_int32_t>(decode_code_point(character, 0));
    utf8proc_int32_t mapped = code;
    switch (letter_case) {
      case LetterCase::lower: mapped = utf8proc_tolower(code); break;
      case LetterCase::upper: mapped = utf8proc_toupper(code); break;
      case LetterCase::title:
      case LetterCase::capitalize: mapped = first ? utf8proc_totitle(code) : utf8proc_tolower(code); break;
    }
    const bool cased = utf8proc_tolower(code) != utf8proc_toupper(code);
    first = letter_case == LetterCase::title && !cased;
    append_code_point(out, static_cast<char32_t>(mapped));
  }
  return out;
}

}  // namespace quench::jinja
