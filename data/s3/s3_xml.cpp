#include "data/s3/s3_xml.h"

#include <array>
#include <charconv>
#include <utility>

namespace quench::s3 {
namespace {

constexpr std::array<std::pair<std::string_view, char>, 5> kEntities{
    {{"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&amp;", '&'}}};

// Character of "&#38;" or "&#x26;" below 128; '\0': none. `size`: of the reference.
char numeric(std::string_view text, std::size_t& size) {
  const std::size_t end = text.find(';');
  if (!text.starts_with("&#") || end == std::string_view::npos) return '\0';
  std::string_view digits = text.substr(2, end - 2);
  const bool is_hex = digits.starts_with('x');
  if (is_hex) digits.remove_prefix(1);
  int value = 0;
  const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, is_hex ? 16 : 10);
  if (error != std::errc() || last != digits.data() + digits.size() || value < 1 || value > 127) return '\0';
  size = end + 1;
  return static_cast<char>(value);
}

std::string decoded(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    std::size_t size = 1;
    char c = text.front();
    if (c == '&') {
      for (const auto& [name, value] : kEntities)
        if (text.starts_with(name)) {
          c = value;
          size = name.size();
        }
      if (const char value = numeric(text, size); value != '\0') c = value;
    }
    result += c;
    text.remove_prefix(size);
  }
  return result;
}

// Removes all up to the end of the first <name>...</name> and gives its content.
bool take_element(std::string_view& xml, std::string_view name, std::string_view& content) {
  const std::string open = "<" + std::string(name), close = "</" + std::string(name) + ">";
  for (std::size_t at = 0; (at = xml.find(open, at)) != std::string_view::npos; at += open.size()) {
    const std::size_t after = at + open.size();
    if (after >= xml.size() || (xml[after] != '>' && xml[after] != ' ' && xml[after] != '/')) continue;
    const std::size_t bracket = xml.find('>', after);
    if (bracket == std::string_view::npos) return false;
    if (xml[bracket - 1] == '/') {
      content = {};
      xml.remove_prefix(bracket + 1);
      return true;
    }
    const std::size_t end = xml.find(close, bracket);
    if (end == std::string_view::npos) return false;
    content = xml.substr(bracket + 1, end - bracket - 1);
    xml.remove_prefix(end + close.size());
    return true;
  }
  return false;
}

}  // namespace

std::string xml_text(std::string_view xml, std::string_view name) {
  std::string_view content;
  return take_element(xml, name, content) ? decoded(content) : std::string();
}

void xml_each(std::string_view xml, std::string_view name, const std::function<void(std::string_view)>& take) {
  for (std::string_view content; take_element(xml, name, content);) take(content);
}

std::string xml_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    std::string piece(1, c);
    for (const auto& [name, value] : kEntities)
      if (c == value) piece = name;
    result += piece;
  }
  return result;
}

}  // namespace quench::s3
