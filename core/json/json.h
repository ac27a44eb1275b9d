#pragma once
// JSON values with source positions, hardened for untrusted files: size and depth limits, no duplicate keys, exact
// integers (never through double), validated UTF-8. Comments (// and /* */) are opt-in.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/system/check.h"

namespace quench {

// JSON value: null, bool, integer, double, string, array or object.
class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // file order, unique keys

  // Bounds the recursion of parse and dump.
  static constexpr std::size_t kMaxDepth = 512;

  // Limits of parse().
  struct ParseOptions {
    bool allow_comments = false;  // also a leading UTF-8 byte order mark
    std::size_t max_bytes = std::size_t{64} << 20;
    std::size_t max_depth = 64;                     // at most kMaxDepth
    std::size_t max_values = std::size_t{8} << 20;  // 48 bytes each
    std::string_view source = "<json>";             // in errors
  };

  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value) {
    if (std::in_range<std::int64_t>(value)) {
      value_ = static_cast<std::int64_t>(value);
    } else {
      value_ = static_cast<std::uint64_t>(value);
    }
  }
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}
  static Json array() { return Json(Array{}); }
  static Json object() { return Json(Object{}); }

  // Throws Error(corrupt) "<source>:<line>:<column>: <what>" unless one well-formed document.
  static Json parse(std::string_view text, const ParseOptions& options);
  static Json parse(std::string_view text) { return parse(text, ParseOptions{}); }
  // `path` replaces `options.source`.
  static Json parse_file(const std::filesystem::path& path, ParseOptions options);
  static Json parse_file(const std::filesystem::path& path) { return parse_file(path, ParseOptions{}); }

  [[nodiscard]] bool is_null() const noexcept { return std::holds_alternative<std::monostate>(value_); }
  [[nodiscard]] bool is_bool() const noexcept { return std::holds_alternative<bool>(value_); }
  // No fraction or exponent, fits int64 or uint64.
  [[nodiscard]] bool is_integer() const noexcept {
    return std::holds_alternative<std::int64_t>(value_) || std::holds_alternative<std::uint64_t>(value_);
  }
  [[nodiscard]] bool is_number() const noexcept { return is_integer() || std::holds_alternative<double>(value_); }
  [[nodiscard]] bool is_string() const noexcept { return std::holds_alternative<std::string>(value_); }
  [[nodiscard]] bool is_array() const noexcept { return std::holds_alternative<Array>(value_); }
  [[nodiscard]] bool is_object() const noexcept { return std::holds_alternative<Object>(value_); }
  // "null", "bool", "integer", "number", "string", "array", "object"
  [[nodiscard]] std::string_view type_name() const noexcept;

  // Throws Error(corrupt) naming expected type, actual type and position.
  [[nodiscard]] bool as_bool() const;
  [[nodiscard]] std::int64_t as_int() const;    // within int64
  [[nodiscard]] std::uint64_t as_uint() const;  // >= 0
  [[nodiscard]] double as_double() const;       // any number
  [[nodiscard]] const std::string& as_string() const;
  [[nodiscard]] const Array& as_array() const;
  [[nodiscard]] const Object& as_object() const;
  [[nodiscard]] Array& as_array();
  [[nodiscard]] Object& as_object();

  // at(): throws naming the key; find(): nullptr.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] Json* find(std::string_view key);
  [[nodiscard]] const Json& at(std::string_view key) const;
  // Keeps the order.
  Json& set(std::string_view key, Json value);
  // False if absent.
  bool erase(std::string_view key);
  void push_back(Json value) { as_array().push_back(std::move(value)); }

  // Position of the first character, 1-based (columns: Unicode characters); 0 if built in memory.
  [[nodiscard]] int line() const noexcept { return line_; }
  [[nodiscard]] int column() const noexcept { return column_; }
  void set_position(int line, int column) noexcept {
    line_ = line;
    column_ = column;
  }

  // indent < 0: one line, else spaces per level. NaN and infinities become null; doubles are shortest round-trip;
  // invalid UTF-8 becomes \ufffd. Locale-independent. Throws invalid_argument beyond kMaxDepth.
  [[nodiscard]] std::string dump(int indent = -1) const;

  // Without positions and object order; 1 equals 1.0.
  friend bool operator==(const Json& a, const Json& b);

 private:
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object> value_;
  int line_ = 0;
  int column_ = 0;
};

}  // namespace quench
