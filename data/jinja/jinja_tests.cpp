// What stands behind "is".

#include <algorithm>

#include "core/system/check.h"
#include "data/jinja/jinja_functions.h"
#include "data/jinja/jinja_text.h"

namespace quench::jinja {
namespace {

const Value& other(const Arguments& a) {
  QUENCH_CHECK(a.values.size() == 1 && a.keywords.empty(), "the test '{}' takes one argument", a.called);
  return a.values[0];
}

std::int64_t whole(const Value& value, const Arguments& a) {
  QUENCH_CHECK(value.is_integer() || value.is_bool(), "the test '{}' of a value of type {}", a.called,
               value.type_name());
  return value.integer();
}

bool is_iterable(const Value& v) {
  return v.is_list() || v.is_map() || v.is_string() || v.is_undefined();
}

// Python's floor modulus.
std::int64_t modulus(std::int64_t a, std::int64_t b) {
  QUENCH_CHECK(b != 0, "division by zero");
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

struct Test {
  std::string_view name;
  bool (*apply)(const Value& input, const Arguments& arguments);
};

constexpr Test kTests[] = {
    {"!=", [](const Value& v, const Arguments& a) { return !equal(v, other(a)); }},
    {"<", [](const Value& v, const Arguments& a) { return less(v, other(a)); }},
    {"<=", [](const Value& v, const Arguments& a) { return !less(other(a), v); }},
    {"==", [](const Value& v, const Arguments& a) { return equal(v, other(a)); }},
    {">", [](const Value& v, const Arguments& a) { return less(other(a), v); }},
    {">=", [](const Value& v, const Arguments& a) { return !less(v, other(a)); }},
    {"boolean", [](const Value& v, const Arguments&) { return v.is_bool(); }},
    {"callable", [](const Value& v, const Arguments&) { return v.is_callable(); }},
    {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
    {"divisibleby", [](const Value& v, const Arguments& a) { return modulus(whole(v, a), whole(other(a), a)) == 0; }},
    {"eq", [](const Value& v, const Arguments& a) { return equal(v, other(a)); }},
    {"equalto", [](const Value& v, const Arguments& a) { return equal(v, other(a)); }},
    {"even", [](const Value& v, const Arguments& a) { return whole(v, a) % 2 == 0; }},
    {"false", [](const Value& v, const Arguments&) { return v.is_bool() && !v.boolean(); }},
    {"float", [](const Value& v, const Arguments&) { return v.is_float(); }},
    {"ge", [](const Value& v, const Arguments& a) { return !less(v, other(a)); }},
    {"gt", [](const Value& v, const Arguments& a) { return less(other(a), v); }},
    {"in", [](const Value& v, const Arguments& a) { return contains(other(a), v); }},
    {"integer", [](const Value& v, const Arguments&) { return v.is_integer(); }},
    {"iterable", [](const Value& v, const Arguments&) { return is_iterable(v); }},
    {"le", [](const Value& v, const Arguments& a) { return !less(other(a), v); }},
    {"lt", [](const Value& v, const Arguments& a) { return less(v, other(a)); }},
    {"mapping", [](const Value& v, const Arguments&) { return v.is_map(); }},
    {"ne", [](const Value& v, const Arguments& a) { return !equal(v, other(a)); }},
    {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
    {"number", [](const Value& v, const Arguments&) { return v.is_number(); }},
    {"odd", [](const Value& v, const Arguments& a) { return whole(v, a) % 2 != 0; }},
    {"sequence", [](const Value& v, const Arguments&) { return is_iterable(v); }},
    {"string", [](const Value& v, const Arguments&) { return v.is_string(); }},
    {"true", [](const Value& v, const Arguments&) { return v.is_bool() && v.boolean(); }},
    {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
};

}  // namespace

bool apply_test(std::string_view name, const Value& input, const Arguments& arguments) {
  const auto* test = std::ranges::find(kTests, name, &Test::name);
  QUENCH_CHECK_AS(ErrorCode::unsupported, test != std::end(kTests), "the test '{}' is not supported", name);
  return test->apply(input, arguments);
}

}  // namespace quench::jinja
