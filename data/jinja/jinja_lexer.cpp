#include "data/jinja/jinja_lexer.h"

#include <algorithm>
#include <array>

#include "core/system/check.h"
#include "data/jinja/jinja_text.h"
#include "data/tokenizer/text/code_points.h"

namespace quench::jinja {
namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  Lexer(std::string source, std::string_view name) : source_(std::move(source)), name_(name) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_text();
    tokens_.push_back({TokenKind::end, "", line_});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    QUENCH_FAIL(ErrorCode::unsupported, "{}", located(name_, line_, what));
  }

  [[nodiscard]] bool looking_at(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }

  void advance(std::size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    line_start_ = end > at_ ? source_[end - 1] == '\n' : line_start_;
    at_ = end;
  }

  void add_text(std::string_view text) {
    if (!text.empty()) tokens_.push_back({TokenKind::text, std::string(text), line_});
  }

  // White space control applied.
  [[nodiscard]] std::string_view before_tag(std::string_view text, char sign, bool block) const {
    if (sign == '-') return strip(text, {}, StripSide::right);
    if (sign == '+' || !block) return text;
    const std::size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_start_) return text;
    const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    return strip(text.substr(start), {}, StripSide::both).empty() ? text.substr(0, start) : text;
  }

  // "-" strips all white space, a block without a sign one newline.
  void skip_after_tag(char sign, bool block) {
    if (sign == '-') {
      const std::string_view rest = std::string_view(source_).substr(at_);
      advance(at_ + rest.size() - strip(rest, {}, StripSide::left).size());
    } else if (block && sign != '+' && at_ < source_.size() && source_[at_] == '\n') {
      advance(at_ + 1);
    }
  }

  void read_text() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        add_text(std::string_view(source_).substr(at_));
        advance(source_.size());
        return;
      }
      if (const char kind = source_[tag + 1]; kind == '{' || kind == '%' || kind == '#') break;
    }
    const char kind = source_[tag + 1];
    char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (sign != '-' && sign != '+') sign = ' ';
    add_text(before_tag(std::string_view(source_).substr(at_, tag - at_), sign, kind != '{'));
    advance(tag + (sign == ' ' ? 2 : 3));
    if (kind == '#') {
      read_comment();
    } else if (kind == '%' && read_raw()) {
      return;
    } else {
      read_tag(kind == '%');
    }
  }

  void read_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment without its end \"#}\"");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    advance(end + 2);
    skip_after_tag(sign, true);
  }

  bool read_raw() {
    const std::size_t begin = at_;
    std::size_t at = at_;
    const auto spaces = [&] {
      while (at < source_.size() && (source_[at] == ' ' || source_[at] == '\t' || source_[at] == '\n')) ++at;
    };
    const auto tag = [&](std::string_view word, char& sign) {
      spaces();
      if (source_.compare(at, word.size(), word) != 0) return false;
      at += word.size();
      spaces();
      sign = at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at++] : ' ';
      if (source_.compare(at, 2, "%}") != 0) return false;
      at += 2;
      return true;
    };
    char sign = ' ';
    if (!tag("raw", sign)) return false;
    advance(at);
    skip_after_tag(sign, true);
    const std::size_t text = at_;
    for (std::size_t end = source_.find("{%", text); end != std::string::npos; end = source_.find("{%", end + 2)) {
      at = end + 2;
      char front = at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at++] : ' ';
      if (!tag("endraw", sign)) continue;
      add_text(before_tag(std::string_view(source_).substr(text, end - text), front, true));
      advance(at);
      skip_after_tag(sign, true);
      return true;
    }
    at_ = begin;
    fail("{% raw %} without {% endraw %}");
  }

  void read_tag(bool block) {
    const std::string_view end = block ? "%}" : "}}";
    tokens_.push_back({block ? TokenKind::block_begin : TokenKind::variable_begin, "", line_});
    std::string open;  // brackets
    const int first_line = line_;
    while (true) {
      while (at_ < source_.size() && std::string_view(" \t\n\r\f\v").find(source_[at_]) != std::string_view::npos)
        advance(at_ + 1);
      if (at_ >= source_.size()) {
        line_ = first_line;
        fail(fmt::format("a tag without its end \"{}\"", end));
      }
      const char sign = source_[at_];
      const bool signed_end = (sign == '-' || (sign == '+' && block)) && source_.compare(at_ + 1, 2, end) == 0;
      if (open.empty() && (signed_end || looking_at(end))) {
        tokens_.push_back({block ? TokenKind::block_end : TokenKind::variable_end, "", line_});
        advance(at_ + (signed_end ? 3 : 2));
        skip_after_tag(signed_end ? sign : ' ', block);
        return;
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    const char c = source_[at_];
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
      push(TokenKind::name, end);
    } else if (is_digit(c)) {
      read_number();
    } else if (c == '"' || c == '\'') {
      read_string(c);
    } else {
      read_symbol(open);
    }
  }

  void push(TokenKind kind, std::size_t end) {
    tokens_.push_back({kind, source_.substr(at_, end - at_), line_});
    advance(end);
  }

  // 12, 1_000, 0x1f, 1.5, 1e20; text without underscores.
  void read_number() {
    std::string text;
    std::size_t end = at_;
    // With single underscores; true if there is one.
    const auto digits = [&](std::string_view among) {
      const std::size_t begin = end;
      const auto is_one = [&](std::size_t at) {
        return at < source_.size() && among.find(static_cast<char>(source_[at] | 0x20)) != std::string_view::npos;
      };
      while (is_one(end) || (end > begin && end < source_.size() && source_[end] == '_' && is_one(end + 1))) {
        if (source_[end] != '_') text += source_[end];
        ++end;
      }
      return end > begin;
    };
    constexpr std::string_view kDecimal = "0123456789";
    const char base =
        source_[at_] == '0' && at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : ' ';
    if (base == 'x' || base == 'o' || base == 'b') {
      text = {'0', base};
      end += 2;
      if (digits(base == 'x' ? "0123456789abcdef" : base == 'o' ? "01234567" : "01")) {
        tokens_.push_back({TokenKind::integer, std::move(text), line_});
        return advance(end);
      }
      end = at_;
      text.clear();
    }
    digits(kDecimal);
    TokenKind kind = TokenKind::integer;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      kind = TokenKind::number;
      ++end;
      text += '.';
      digits(kDecimal);
    }
    const std::size_t sign = end + 1 < source_.size() && (source_[end + 1] == '-' || source_[end + 1] == '+') ? 1 : 0;
    if (end + sign + 1 < source_.size() && (source_[end] | 0x20) == 'e' && is_digit(source_[end + sign + 1])) {
      kind = TokenKind::number;
      text += sign == 1 && source_[end + 1] == '-' ? "e-" : "e";
      end += sign + 1;
      digits(kDecimal);
    }
    if (kind == TokenKind::integer && text.size() > 1 && text[0] == '0' &&
        text.find_first_not_of('0') != std::string::npos)
      fail("an integer that begins with 0");
    tokens_.push_back({kind, std::move(text), line_});
    advance(end);
  }

  // Python's escapes.
  void read_string(char quote) {
    std::string text;
    const int line = line_;
    std::size_t at = at_ + 1;
    for (;; ++at) {
      if (at >= source_.size()) fail("a string without its end");
      const char c = source_[at];
      if (c == quote) break;
      if (c != '\\') {
        text += c;
        continue;
      }
      if (++at >= source_.size()) fail("a string without its end");
      constexpr std::string_view kEscapes = "nrtbfva\\'\"", kMeanings = "\n\r\t\b\f\v\a\\'\"";
      const char escape = source_[at];
      if (const std::size_t known = kEscapes.find(escape); known != std::string_view::npos) {
        text += kMeanings[known];
      } else if (escape == 'x' || escape == 'u' || escape == 'U') {
        const std::size_t digits = escape == 'x' ? 2 : escape == 'u' ? 4 : 8;
        std::uint32_t code = 0;
        for (std::size_t i = 0; i < digits; ++i) {
          const std::size_t digit =
              ++at < source_.size() ? std::string_view("0123456789abcdef").find(static_cast<char>(source_[at] | 0x20))
                                    : std::string_view::npos;
          if (digit == std::string_view::npos) fail("a string has an escape with too few hexadecimal digits");
          code = code * 16 + static_cast<std::uint32_t>(digit);
        }
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("a string has an escape that is no character");
        append_code_point(text, static_cast<char32_t>(code));
      } else if (escape >= '0' && escape <= '7') {
        std::uint32_t code = 0;
        std::size_t end = at;
        for (; end < source_.size() && end < at + 3 && source_[end] >= '0' && source_[end] <= '7'; ++end)
          code = code * 8 + static_cast<std::uint32_t>(source_[end] - '0');
        append_code_point(text, static_cast<char32_t>(code));
        at = end - 1;
      } else if (escape == 'N') {
        fail("a string has an escape with a character's name, which is not supported");
      } else if (escape == '\n') {
        continue;
      } else {
        text += '\\';
        text += escape;
      }
    }
    tokens_.push_back({TokenKind::string, std::move(text), line});
    advance(at + 1);
  }

  void read_symbol(std::string& open) {
    constexpr std::array<std::string_view, 26> kSymbols = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*",
                                                           "/",  "%",  "~",  "<",  ">",  "=",  ".", ":", "|",
                                                           ",",  "(",  ")",  "[",  "]",  "{",  "}", ";"};
    for (const std::string_view symbol : kSymbols) {
      if (!looking_at(symbol)) continue;
      const char c = symbol[0];
      if (c == '(' || c == '[' || c == '{') open += c;
      if (c == ')' || c == ']' || c == '}') {
        const char other = c == ')' ? '(' : c == ']' ? '[' : '{';
        if (open.empty() || open.back() != other) fail(fmt::format("'{}' without its beginning", c));
        open.pop_back();
      }
      return push(TokenKind::symbol, at_ + symbol.size());
    }
    fail(fmt::format("'{}' is no part of an expression",
                     source_.substr(at_, std::max<std::size_t>(1, utf8_sequence_length(source_, at_)))));
  }

  std::string source_;
  std::string_view name_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;  // at the start, or after a newline
  std::vector<Token> tokens_;
};

// "\n", without the last.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

std::string located(std::string_view name, int line, std::string_view what) {
  return fmt::format("{}:{}: {}", name, line, what);
}

std::vector<Token> tokenize(std::string_view source, std::string_view name) {
  return Lexer(normalized(source), name).run();
}

}  // namespace quench::jinja
