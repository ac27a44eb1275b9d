#include "train/report/html.h"

#include "core/system/utf8.h"

namespace quench {

std::string escape_html(std::string_view text) {
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_sequence_length(text, i);
    const auto lead = static_cast<unsigned char>(text[i]);
    const bool control = (lead < 0x20 && lead != '\n' && lead != '\t') || lead == 0x7F ||
                         (length == 2 && lead == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0);
    if (length == 0 || control) {
      result += "\xEF\xBF\xBD";
      i += length == 0 ? 1 : length;
      continue;
    }
    switch (text[i]) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += text.substr(i, length);
    }
    i += length;
  }
  return result;
}

std::string shorten(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  std::size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "\xE2\x80\xA6";
}

}  // namespace quench
