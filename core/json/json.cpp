#include "core/json/json.h"

#include <algorithm>
#include <cmath>

#include "core/system/file.h"

namespace quench {
namespace {

[[noreturn]] void fail_type(const Json& value, std::string_view expected) {
  std::string got(value.type_name());
  if (value.is_number() || value.is_bool()) got += " " + value.dump();
  if (value.line() > 0)
    QUENCH_FAIL(ErrorCode::corrupt, "line {}, column {}: expected {}, got {}", value.line(), value.column(), expected,
                got);
  QUENCH_FAIL(ErrorCode::corrupt, "expected {}, got {}", expected, got);
}

std::vector<const Json::Member*> sorted(const Json::Object& object) {
  std::vector<const Json::Member*> members;
  members.reserve(object.size());
  for (const Json::Member& member : object) members.push_back(&member);
  std::sort(members.begin(), members.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  return members;
}

bool equal_objects(const Json::Object& a, const Json::Object& b) {
  if (a.size() != b.size()) return false;
  const auto left = sorted(a);
  const auto right = sorted(b);
  return std::equal(left.begin(), left.end(), right.begin(), [](const Json::Member* x, const Json::Member* y) {
    return x->first == y->first && x->second == y->second;
  });
}

// True if exactly that integer.
template <class Integer>
bool equal_numbers(double real, Integer integer) {
  if (real != static_cast<double>(integer)) return false;
  // Large integers round up to 2^63 or 2^64, which do not convert back.
  const double limit = std::ldexp(1.0, std::is_signed_v<Integer> ? 63 : 64);
  return real < limit && static_cast<Integer>(real) == integer;
}

}  // namespace

Json Json::parse_file(const std::filesystem::path& path, ParseOptions options) {
  const std::string text = read_file(path, options.max_bytes);
  const std::string name = path.string();
  options.source = name;
  return parse(text, options);
}

std::string_view Json::type_name() const noexcept {
  if (is_null()) return "null";
  if (is_bool()) return "bool";
  if (is_integer()) return "integer";
  if (is_number()) return "number";
  if (is_string()) return "string";
  if (is_array()) return "array";
  return "object";
}

bool Json::as_bool() const {
  if (const auto* value = std::get_if<bool>(&value_)) return *value;
  fail_type(*this, "bool");
}

std::int64_t Json::as_int() const {
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return *value;
  fail_type(*this, "integer of at most 64 bits with sign");
}

std::uint64_t Json::as_uint() const {
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_); value != nullptr && *value >= 0)
    return static_cast<std::uint64_t>(*value);
  fail_type(*this, "non-negative integer");
}

double Json::as_double() const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*value);
  fail_type(*this, "number");
}

const std::string& Json::as_string() const {
  if (const auto* value = std::get_if<std::string>(&value_)) return *value;
  fail_type(*this, "string");
}

const Json::Array& Json::as_array() const {
  if (const auto* value = std::get_if<Array>(&value_)) return *value;
  fail_type(*this, "array");
}

const Json::Object& Json::as_object() const {
  if (const auto* value = std::get_if<Object>(&value_)) return *value;
  fail_type(*this, "object");
}

Json::Array& Json::as_array() {
  return const_cast<Array&>(std::as_const(*this).as_array());
}

Json::Object& Json::as_object() {
  return const_cast<Object&>(std::as_const(*this).as_object());
}

const Json* Json::find(std::string_view key) const {
  for (const Member& member : as_object())
    if (member.first == key) return &member.second;
  return nullptr;
}

Json* Json::find(std::string_view key) {
  return const_cast<Json*>(std::as_const(*this).find(key));
}

const Json& Json::at(std::string_view key) const {
  if (const Json* value = find(key)) return *value;
  if (line_ > 0)
    QUENCH_FAIL(ErrorCode::corrupt, "the object at line {}, column {} has no key \"{}\"", line_, column_, key);
  QUENCH_FAIL(ErrorCode::corrupt, "the object has no key \"{}\"", key);
}

Json& Json::set(std::string_view key, Json value) {
  if (Json* present = find(key)) return *present = std::move(value);
  return as_object().emplace_back(std::string(key), std::move(value)).second;
}

bool Json::erase(std::string_view key) {
  Object& object = as_object();
  const auto member = std::find_if(object.begin(), object.end(), [&](const Member& m) { return m.first == key; });
  if (member == object.end()) return false;
  object.erase(member);
  return true;
}

bool operator==(const Json& a, const Json& b) {
  if (a.value_.index() == b.value_.index()) {
    if (a.is_object()) return equal_objects(a.as_object(), b.as_object());
    return a.value_ == b.value_;
  }
  const auto mixed = [](const Json& real, const Json& integer) {
    const auto* d = std::get_if<double>(&real.value_);
    if (d == nullptr) return false;
    if (const auto* i = std::get_if<std::int64_t>(&integer.value_)) return equal_numbers(*d, *i);
    if (const auto* u = std::get_if<std::uint64_t>(&integer.value_)) return equal_numbers(*d, *u);
    return false;
  };
  return mixed(a, b) || mixed(b, a);
}

}  // namespace quench
