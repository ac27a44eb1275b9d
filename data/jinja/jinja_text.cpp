#include "data/jinja/jinja_text.h"

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

// As str.splitlines(), except "\r\n".
bool is_line_end(std::string_view character) {
  if (utf8_sequence_length(character, 0) == 0) return false;
  const char32_t code = decode_code_point(character, 0);
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
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
  std::size_t begin = 0, end = 0;  // end: after the last kept character
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
  if (from.empty()) {  // before each character, and at the end
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

std::vector<std::string> split_from_end(std::string_view text, std::string_view separator, std::int64_t limit) {
  if (limit < 0) return split(text, separator, limit);
  std::vector<std::string> parts;
  const auto full = [&] { return static_cast<std::int64_t>(parts.size()) >= limit; };
  if (separator.empty()) {
    std::string_view rest = strip(text, {}, StripSide::right);
    while (!rest.empty() && !full()) {
      std::size_t begin = 0;  // begin of the last word
      for (std::size_t i = 0; i < rest.size(); i += length_at(rest, i))
        if (is_space(rest.substr(i, length_at(rest, i)))) begin = i + length_at(rest, i);
      parts.emplace_back(rest.substr(begin));
      rest = strip(rest.substr(0, begin), {}, StripSide::right);
    }
    if (!rest.empty()) parts.emplace_back(rest);
  } else {
    std::string_view rest = text;
    while (!full()) {
      const std::size_t at = rest.rfind(separator);
      if (at == std::string_view::npos) break;
      parts.emplace_back(rest.substr(at + separator.size()));
      rest = rest.substr(0, at);
    }
    parts.emplace_back(rest);
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t length = length_at(text, i);
    if (!is_line_end(text.substr(i, length))) {
      i += length;
      continue;
    }
    if (text.substr(i).starts_with("\r\n")) length = 2;
    lines.emplace_back(text.substr(begin, i - begin + (keep_ends ? length : 0)));
    begin = i += length;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace quench::jinja
