#include <algorithm>
#include <limits>

#include "core/json/json.h"
#include "core/json/json_sax.h"
#include "core/system/utf8.h"

namespace quench {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Follows the parser by token: all positions in one linear pass.
class TokenCursor {
 public:
  explicit TokenCursor(std::string_view text) : text_(text) {}

  [[nodiscard]] int line() const noexcept { return line_; }
  [[nodiscard]] int column() const noexcept { return column_; }
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
  // NUL at the end.
  [[nodiscard]] char peek() const noexcept { return offset_ < text_.size() ? text_[offset_] : '\0'; }

  void move_to(std::size_t offset) {
    for (offset = std::min(offset, text_.size()); offset_ < offset; ++offset_) {
      const auto byte = static_cast<unsigned char>(text_[offset_]);
      if (byte == '\n') {
        ++line_;
        column_ = 1;
      } else if ((byte & 0xC0) != 0x80) {
        ++column_;
      }
    }
  }

  // White space, commas and colons.
  void skip_to_token() {
    while (offset_ < text_.size()) {
      if (const char c = peek(); c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' || c == ':') {
        move_to(offset_ + 1);
      } else if (text_.substr(offset_, 2) == "//") {
        move_to(text_.find_first_of("\r\n", offset_));
      } else if (text_.substr(offset_, 2) == "/*") {
        const std::size_t close = text_.find("*/", offset_ + 2);
        move_to(close == std::string_view::npos ? text_.size() : close + 2);
      } else {
        return;
      }
    }
  }

  // Accepted by the parser.
  void skip_token() {
    if (peek() == '"') {
      std::size_t end = offset_ + 1;
      while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
      move_to(end + 1);
    } else if (std::string_view("[]{}").find(peek()) != std::string_view::npos) {
      move_to(offset_ + 1);
    } else {
      move_to(text_.find_first_of(" \t\r\n,:[]{}/\"", offset_));
    }
  }

 private:
  std::string_view text_;
  std::size_t offset_ = 0;
  int line_ = 1;
  int column_ = 1;
};

class TreeBuilder final : public JsonSax {
 public:
  TreeBuilder(std::string_view text, const Json::ParseOptions& options) : cursor_(text), options_(options) {}

  [[nodiscard]] Json take() { return std::move(root_); }

  bool null() override { return leaf(Json()); }
  bool boolean(bool value) override { return leaf(Json(value)); }
  bool number_integer(number_integer_t value) override { return leaf(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return leaf(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return leaf(Json(value)); }
  bool string(string_t& value) override { return leaf(Json(std::move(value))); }
  bool binary(binary_t&) override { return fail("binary values do not occur in JSON text"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    cursor_.skip_to_token();
    cursor_.skip_token();
    open_.back()->as_object().emplace_back(std::move(value), Json());
    return true;
  }

  bool end_object() override {
    const auto& members = open_.back()->as_object();
    std::vector<const Json::Member*> order(members.size());
    std::transform(members.begin(), members.end(), order.begin(), [](const Json::Member& m) { return &m; });
    std::sort(order.begin(), order.end(),
              [](const auto* a, const auto* b) { return a->first != b->first ? a->first < b->first : a < b; });
    const auto twice = std::adjacent_find(order.begin(), order.end(),
                                          [](const auto* a, const auto* b) { return a->first == b->first; });
    if (twice != order.end()) {
      const Json& first = (*twice)->second;
      const Json& second = (*std::next(twice))->second;
      fail_at(second.line(), second.column(),
              fmt::format("duplicate key \"{}\" (its first value is at line {}, column {})",
                          shorten_utf8((*twice)->first, 100), first.line(), first.column()));
    }
    return close();
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string text = json_error_reason(error.what());
    const std::size_t offending = position > 0 ? position - 1 : 0;
    TokenCursor token = cursor_;
    token.skip_to_token();
    // Offending character in a string, else its token.
    const bool inside_string = token.peek() == '"' && text.find("invalid string") != std::string::npos;
    cursor_.move_to(inside_string ? offending : std::min(token.offset(), offending));
    return fail(text);
  }

 private:
  // Appends to the open container, with position.
  Json& place(Json value) {
    cursor_.skip_to_token();
    if (++values_ > options_.max_values) fail(fmt::format("more than {} values", options_.max_values));
    value.set_position(cursor_.line(), cursor_.column());
    cursor_.skip_token();
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_object()) return parent.as_object().back().second = std::move(value);
    return parent.as_array().emplace_back(std::move(value));
  }

  bool leaf(Json value) {
    place(std::move(value));
    return true;
  }

  // Pointers in open_ stay valid: only the innermost container grows.
  bool open(Json value) {
    cursor_.skip_to_token();
    if (open_.size() >= options_.max_depth) fail(fmt::format("nested deeper than {} levels", options_.max_depth));
    open_.push_back(&place(std::move(value)));
    return true;
  }

  bool close() {
    cursor_.skip_to_token();
    cursor_.skip_token();
    open_.pop_back();
    return true;
  }

  [[noreturn]] bool fail(const std::string& what) { fail_at(cursor_.line(), cursor_.column(), what); }

  [[noreturn]] bool fail_at(int line, int column, const std::string& what) {
    QUENCH_FAIL(ErrorCode::corrupt, "{}:{}:{}: {}", options_.source, line, column, what);
  }

  TokenCursor cursor_;
  const Json::ParseOptions& options_;
  Json root_;
  std::vector<Json*> open_;
  std::size_t values_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text, const ParseOptions& options) {
  QUENCH_CHECK(options.max_depth <= kMaxDepth, "Json::parse: max_depth {} exceeds {}", options.max_depth, kMaxDepth);
  // Lines and columns are ints.
  const std::size_t max_bytes = std::min<std::size_t>(options.max_bytes, std::numeric_limits<int>::max());
  QUENCH_CHECK_AS(ErrorCode::corrupt, text.size() <= max_bytes, "{} has {} bytes; at most {} are accepted here",
                  options.source, text.size(), max_bytes);
  const auto fail_at = [&](std::size_t offset, std::string_view what) {
    TokenCursor cursor(text);
    cursor.move_to(offset);
    QUENCH_FAIL(ErrorCode::corrupt, "{}:{}:{}: {}", options.source, cursor.line(), cursor.column(), what);
  };
  if (text.starts_with(kByteOrderMark)) {
    if (!options.allow_comments) fail_at(0, "the file starts with a byte order mark; save it as UTF-8 without one");
    text.remove_prefix(kByteOrderMark.size());
  }
  if (const auto bad = find_invalid_utf8(text); bad != std::string_view::npos)
    fail_at(bad, fmt::format("byte 0x{:02X} is not valid UTF-8 here", static_cast<unsigned char>(text[bad])));
  // The parser ends at NUL.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) fail_at(nul, "NUL byte");
  TreeBuilder builder(text, options);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder, nlohmann::json::input_format_t::json, true,
                            options.allow_comments);
  return builder.take();
}

}  // namespace quench
