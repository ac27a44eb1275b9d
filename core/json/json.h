#pragma once
// JSON values that remember where they stood in the file, so that every error about a value can name its line.
//
// Parsing goes through nlohmann/json's SAX interface with the guards that untrusted files need: size and depth caps,
// duplicate keys rejected, integers kept exact (never converted through double), UTF-8 checked. Comments
// (// and /* */) are accepted only where the caller says so.

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

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in file order; keys are unique

  // No value that parse returns or dump accepts nests deeper, so neither can exhaust the stack.
  static constexpr std::size_t kMaxDepth = 512;

  struct ParseOptions {
    bool allow_comments = false;  // files that people write: a leading UTF-8 byte order mark is accepted as well
    std::size_t max_bytes = std::size_t{64} << 20;
    std::size_t max_depth = 64;                     // nested arrays and objects; kMaxDepth at most
    std::size_t max_values = std::size_t{8} << 20;  // nodes in the whole document, 48 bytes each
    std::string_view source = "<json>";             // file name used in errors
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

  // Throws Error(corrupt) "<source>:<line>:<column>: <what>" for anything that is not one well-formed document.
  static Json parse(std::string_view text, const ParseOptions& options);
  static Json parse(std::string_view text) { return parse(text, ParseOptions{}); }
  // Reads and parses a file; errors name the path. `options.source` is replaced by the path.
  static Json parse_file(const std::filesystem::path& path, ParseOptions options);
  static Json parse_file(const std::filesystem::path& path) { return parse_file(path, ParseOptions{}); }

  [[nodiscard]] bool is_null() const noexcept { return std::holds_alternative<std::monostate>(value_); }
  [[nodiscard]] bool is_bool() const noexcept { return std::holds_alternative<bool>(value_); }
  // Integers are what was written without fraction or exponent and fits int64 or uint64.
  [[nodiscard]] bool is_integer() const noexcept {
    return std::holds_alternative<std::int64_t>(value_) || std::holds_alternative<std::uint64_t>(value_);
  }
  [[nodiscard]] bool is_number() const noexcept { return is_integer() || std::holds_alternative<double>(value_); }
  [[nodiscard]] bool is_string() const noexcept { return std::holds_alternative<std::string>(value_); }
  [[nodiscard]] bool is_array() const noexcept { return std::holds_alternative<Array>(value_); }
  [[nodiscard]] bool is_object() const noexcept { return std::holds_alternative<Object>(value_); }
  // "null", "bool", "integer", "number", "string", "array", "object"
  [[nodiscard]] std::string_view type_name() const noexcept;

  // Checked access; throws Error(corrupt) naming the expected and actual type and the position.
  [[nodiscard]] bool as_bool() const;
  [[nodiscard]] std::int64_t as_int() const;    // integer within int64
  [[nodiscard]] std::uint64_t as_uint() const;  // integer >= 0
  [[nodiscard]] double as_double() const;       // any number
  [[nodiscard]] const std::string& as_string() const;
  [[nodiscard]] const Array& as_array() const;
  [[nodiscard]] const Object& as_object() const;
  [[nodiscard]] Array& as_array();
  [[nodiscard]] Object& as_object();

  // Object lookup: nullptr when absent (find), or an error naming the key (at).
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] Json* find(std::string_view key);
  [[nodiscard]] const Json& at(std::string_view key) const;
  // Inserts or replaces a member, keeping order.
  Json& set(std::string_view key, Json value);
  // Removes a member; false if it was absent.
  bool erase(std::string_view key);
  void push_back(Json value) { as_array().push_back(std::move(value)); }

  // Position of the value's first character in the parsed text, counted from 1 in lines and Unicode characters;
  // 0 when built in memory.
  [[nodiscard]] int line() const noexcept { return line_; }
  [[nodiscard]] int column() const noexcept { return column_; }
  void set_position(int line, int column) noexcept {
    line_ = line;
    column_ = column;
  }

  // indent < 0: one line; otherwise that many spaces a level. NaN and infinities are written as null (a strict reader
  // must accept the output); doubles use the shortest form that reads back as an equal double; bytes that are not UTF-8
  // become \ufffd. Does not depend on the locale. Throws invalid_argument beyond kMaxDepth.
  [[nodiscard]] std::string dump(int indent = -1) const;

  // Same value, ignoring positions; object order does not matter, and 1 equals 1.0.
  friend bool operator==(const Json& a, const Json& b);

 private:
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object> value_;
  int line_ = 0;
  int column_ = 0;
};

}  // namespace quench
