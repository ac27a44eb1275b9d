#pragma once
// Python's None, bool, int, float, str, list, tuple, dict. Strings, sequences and maps are shared and immutable; only
// namespaces and iterator positions are mutable.

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
struct Scope;
struct LoopState;

using List = std::vector<Value>;

struct Map {
  std::vector<std::pair<Value, Value>> members;  // in order; unique keys
  // Message index; -1: none. A loop body's output is attributed to it.
  int message = -1;
  [[nodiscard]] const Value* find(std::string_view key) const noexcept;
  [[nodiscard]] const Value* find(const std::string& key) const noexcept { return find(std::string_view(key)); }
  [[nodiscard]] const Value* find(const char* key) const noexcept { return find(std::string_view(key)); }
  // Python's equality: 1, 1.0 and True are one key.
  [[nodiscard]] const Value* find(const Value& key) const;
  void set(const Value& key, Value value);
};

// Python's ordered types. Iterators are single-pass, truthy, without length. `group`: tuple (grouper, list) of groupby.
enum class SequenceKind : std::uint8_t { list, tuple, group, range, keys, values, items, iterator };

struct Sequence {
  List items;
  SequenceKind kind = SequenceKind::list;
  mutable std::size_t taken = 0;  // elements taken from an iterator
};

// Markup (filters safe and escape) escapes appended text, as MarkupSafe.
struct Text {
  std::string text;
  bool markup = false;
};

// The only value mutable by {% set %}, owned by the rendering; also the state of cyclers and joiners.
enum class NamespaceKind : std::uint8_t { plain, cycler, joiner };
struct Namespace {
  Map members;
  NamespaceKind kind = NamespaceKind::plain;
};

struct Undefined {
  std::string name;  // for errors
};
struct None {};
struct Builtin {
  std::string_view name;  // global function
};
// Both outlive the rendering's values.
struct MacroValue {
  const Macro* macro = nullptr;
  const Scope* scope = nullptr;
};
// Bound.
struct Method;

class Value {
 public:
  Value() = default;  // None
  Value(Undefined value) : value_(std::move(value)) {}
  Value(bool value) : value_(value) {}
  Value(std::int64_t value) : value_(value) {}
  Value(double value) : value_(value) {}
  Value(std::string value) : value_(std::make_shared<const Text>(Text{std::move(value)})) {}
  Value(std::string_view value) : Value(std::string(value)) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(Text value) : value_(std::make_shared<const Text>(std::move(value))) {}
  Value(List value) : Value(std::move(value), SequenceKind::list) {}
  Value(List items, SequenceKind kind) : value_(std::make_shared<const Sequence>(Sequence{std::move(items), kind})) {}
  Value(Map value) : value_(std::make_shared<const Map>(std::move(value))) {}
  Value(Namespace* value) : value_(value) {}
  Value(MacroValue value) : value_(value) {}
  Value(Builtin value) : value_(value) {}
  Value(std::shared_ptr<const Method> value) : value_(std::move(value)) {}
  Value(std::shared_ptr<LoopState> value) : value_(std::move(value)) {}
  // Throws unsupported outside int64.
  static Value from_json(const Json& json);

  [[nodiscard]] bool is_undefined() const noexcept { return holds<Undefined>(); }
  [[nodiscard]] bool is_none() const noexcept { return holds<None>(); }
  [[nodiscard]] bool is_bool() const noexcept { return holds<bool>(); }
  [[nodiscard]] bool is_integer() const noexcept { return holds<std::int64_t>(); }
  [[nodiscard]] bool is_float() const noexcept { return holds<double>(); }
  [[nodiscard]] bool is_number() const noexcept { return is_integer() || is_float() || is_bool(); }
  [[nodiscard]] bool is_string() const noexcept { return holds<SharedText>(); }
  [[nodiscard]] bool is_markup() const noexcept { return is_string() && std::get<SharedText>(value_)->markup; }
  [[nodiscard]] bool is_sequence() const noexcept { return holds<SharedSequence>(); }  // any kind
  [[nodiscard]] bool is_sequence(SequenceKind kind) const noexcept { return is_sequence() && this->kind() == kind; }
  [[nodiscard]] bool is_list() const noexcept { return is_sequence(SequenceKind::list); }
  [[nodiscard]] bool is_tuple() const noexcept {
    return is_sequence(SequenceKind::tuple) || is_sequence(SequenceKind::group);
  }
  [[nodiscard]] bool is_iterator() const noexcept { return is_sequence(SequenceKind::iterator); }
  // list, tuple, range
  [[nodiscard]] bool is_indexed() const noexcept { return is_sequence() && kind() <= SequenceKind::range; }
  [[nodiscard]] bool is_map() const noexcept { return holds<SharedMap>(); }
  [[nodiscard]] bool is_namespace() const noexcept { return holds<Namespace*>(); }
  [[nodiscard]] bool is_callable() const noexcept { return value_.index() > kNamespaceIndex; }

  [[nodiscard]] const std::string& undefined_name() const { return std::get<Undefined>(value_).name; }
  [[nodiscard]] const std::string& string() const { return std::get<SharedText>(value_)->text; }
  [[nodiscard]] const List& items() const { return std::get<SharedSequence>(value_)->items; }
  [[nodiscard]] SequenceKind kind() const { return std::get<SharedSequence>(value_)->kind; }
  [[nodiscard]] std::size_t& taken() const { return std::get<SharedSequence>(value_)->taken; }
  [[nodiscard]] const Map& map() const { return *std::get<SharedMap>(value_); }
  [[nodiscard]] Namespace* name_space() const { return std::get<Namespace*>(value_); }
  [[nodiscard]] MacroValue macro() const noexcept;          // null members: another value
  [[nodiscard]] std::string_view builtin() const noexcept;  // empty: another value
  [[nodiscard]] const Method* method() const noexcept;      // null: another value
  [[nodiscard]] LoopState* loop() const noexcept;           // null: another value
  [[nodiscard]] bool boolean() const { return std::get<bool>(value_); }
  [[nodiscard]] std::int64_t integer() const;  // also of a bool
  [[nodiscard]] double number() const;         // value of any number

  [[nodiscard]] bool truthy() const noexcept;
  [[nodiscard]] std::string_view type_name() const noexcept;  // for errors: "string", "list", ...

 private:
  using SharedText = std::shared_ptr<const Text>;
  using SharedSequence = std::shared_ptr<const Sequence>;
  using SharedMap = std::shared_ptr<const Map>;
  static constexpr std::size_t kNamespaceIndex = 8;
  template <class T>
  [[nodiscard]] bool holds() const noexcept {
    return std::holds_alternative<T>(value_);
  }
  std::variant<None, Undefined, bool, std::int64_t, double, SharedText, SharedSequence, SharedMap, Namespace*,
               MacroValue, Builtin, std::shared_ptr<const Method>, std::shared_ptr<LoopState>>
      value_;
};

struct Method {
  Value object;
  std::string name;
};

// Python's ==: 1 == 1.0 == True; a list never equals a tuple. Like the functions below, throws invalid_argument beyond
// kMaxNesting levels, kMaxParts parts or kMaxTextBytes: shared sublists can grow exponentially.
[[nodiscard]] bool equal(const Value& a, const Value& b);
// str(): "None", "True", 1.0, repr() within lists and maps. Undefined: empty. Throws unsupported for texts with an
// address: macros, iterators, ...
[[nodiscard]] std::string text_of(const Value& value);
// repr(); `ascii`: ascii().
[[nodiscard]] std::string repr_of(const Value& value, bool ascii = false);
// repr(float): shortest round-trip digits.
[[nodiscard]] std::string float_text(double value);

struct JsonStyle {
  bool lines = false;  // one per value
  std::string indent;  // per level
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
  bool ascii = false;  // above 0x7F as \u escapes
};
// json.dumps().
[[nodiscard]] std::string json_text(const Value& value, const JsonStyle& style);

inline constexpr int kMaxNesting = 200;
inline constexpr std::size_t kMaxParts = std::size_t{1} << 20, kMaxTextBytes = std::size_t{64} << 20;

}  // namespace quench::jinja
