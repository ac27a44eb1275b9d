#pragma once
// Values of a Jinja template: what Python's None, bool, int, float, str, list and dict are to Jinja2. Lists, maps and
// strings are shared and never change; only a namespace does.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/json/json.h"

namespace quench::jinja {

class Value;
struct Macro;

using List = std::vector<Value>;

struct Map {
  std::vector<std::pair<std::string, Value>> members;  // in order; keys are unique
  // Which message of a conversation this is; -1: none. Output of a loop body belongs to the message that the loop
  // stands at.
  int message = -1;
  [[nodiscard]] const Value* find(std::string_view key) const noexcept;
};

// The one value that {% set %} can change in place. Owned by the rendering.
struct Namespace {
  Map members;
};

struct Undefined {
  std::string name;  // what was looked up, for errors
};
struct None {};
struct Builtin {
  std::string_view name;  // of a global function
};

class Value {
 public:
  Value() = default;  // None
  Value(Undefined value) : value_(std::move(value)) {}
  Value(bool value) : value_(value) {}
  Value(std::int64_t value) : value_(value) {}
  Value(double value) : value_(value) {}
  Value(std::string value) : value_(std::make_shared<const std::string>(std::move(value))) {}
  Value(std::string_view value) : Value(std::string(value)) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(List value) : value_(std::make_shared<const List>(std::move(value))) {}
  Value(Map value) : value_(std::make_shared<const Map>(std::move(value))) {}
  Value(Namespace* value) : value_(value) {}
  Value(const Macro* value) : value_(value) {}
  Value(Builtin value) : value_(value) {}
  // Throws unsupported for integers outside int64.
  static Value from_json(const Json& json);

  [[nodiscard]] bool is_undefined() const noexcept { return holds<Undefined>(); }
  [[nodiscard]] bool is_none() const noexcept { return holds<None>(); }
  [[nodiscard]] bool is_bool() const noexcept { return holds<bool>(); }
  [[nodiscard]] bool is_integer() const noexcept { return holds<std::int64_t>(); }
  [[nodiscard]] bool is_float() const noexcept { return holds<double>(); }
  [[nodiscard]] bool is_number() const noexcept { return is_integer() || is_float() || is_bool(); }
  [[nodiscard]] bool is_string() const noexcept { return holds<SharedString>(); }
  [[nodiscard]] bool is_list() const noexcept { return holds<SharedList>(); }
  [[nodiscard]] bool is_map() const noexcept { return holds<SharedMap>(); }
  [[nodiscard]] bool is_namespace() const noexcept { return holds<Namespace*>(); }
  [[nodiscard]] bool is_callable() const noexcept { return holds<const Macro*>() || holds<Builtin>(); }

  [[nodiscard]] const std::string& undefined_name() const { return std::get<Undefined>(value_).name; }
  [[nodiscard]] const std::string& string() const { return *std::get<SharedString>(value_); }
  [[nodiscard]] const List& list() const { return *std::get<SharedList>(value_); }
  [[nodiscard]] const Map& map() const { return *std::get<SharedMap>(value_); }
  [[nodiscard]] Namespace* name_space() const { return std::get<Namespace*>(value_); }
  [[nodiscard]] const Macro* macro() const noexcept;        // null: another value
  [[nodiscard]] std::string_view builtin() const noexcept;  // empty: another value
  [[nodiscard]] bool boolean() const { return std::get<bool>(value_); }
  [[nodiscard]] std::int64_t integer() const;  // of a bool too
  [[nodiscard]] double number() const;         // of any number

  [[nodiscard]] bool truthy() const noexcept;
  [[nodiscard]] std::string_view type_name() const noexcept;  // as errors call it: "string", "list", ...

 private:
  using SharedString = std::shared_ptr<const std::string>;
  using SharedList = std::shared_ptr<const List>;
  using SharedMap = std::shared_ptr<const Map>;
  template <class T>
  [[nodiscard]] bool holds() const noexcept {
    return std::holds_alternative<T>(value_);
  }
  std::variant<None, Undefined, bool, std::int64_t, double, SharedString, SharedList, SharedMap, Namespace*,
               const Macro*, Builtin>
      value_;
};

// Python's ==: 1 == 1.0 == True; values of other types differ. Like the functions below, throws invalid_argument for
// values nested deeper than kMaxNesting, and for those of more than kMaxParts parts or kMaxTextBytes: lists that hold
// a list twice, again and again, take little memory and have no end.
[[nodiscard]] bool equal(const Value& a, const Value& b);
// Python's str(): "None", "True", 1.0, and repr() within lists and maps. Undefined is empty.
[[nodiscard]] std::string text_of(const Value& value);

struct JsonStyle {
  int indent = -1;  // below 0: one line
  bool sort_keys = false;
  bool ascii = false;  // code points above 0x7F as \u escapes
};
// Python's json.dumps(): ", " and ": " between values.
[[nodiscard]] std::string json_text(const Value& value, const JsonStyle& style);

inline constexpr int kMaxNesting = 200;
inline constexpr std::size_t kMaxParts = std::size_t{1} << 20, kMaxTextBytes = std::size_t{64} << 20;

}  // namespace quench::jinja
