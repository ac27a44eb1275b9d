// Tests: right-hand sides of "is".

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

// Python's modulo.
bool leaves(const Value& value, const Value& divisor, std::int64_t rest, const Arguments& a) {
  for (const Value* number : {&value, &divisor})
    QUENCH_CHECK(number->is_number(), "the test '{}' of a value of type {}", a.called, number->type_name());
  Meter meter(1, 0);
  return equal(apply_operator("%", value, divisor, meter), rest);
}

bool is_iterable(const Value& v) {
  return v.is_sequence() || v.is_map() || v.is_string() || v.is_undefined();
}

std::string_view name_in(const Value& v) {
  return v.is_string() ? std::string_view(v.string()) : std::string_view();
}

// Equal scalars of one type.
bool is_same(const Value& a, const Value& b) {
  return a.type_name() == b.type_name() && equal(a, b);
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
    {"callable", [](const Value& v, const Arguments&) { return v.is_callable() || v.is_undefined(); }},
    {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
    {"divisibleby", [](const Value& v, const Arguments& a) { return leaves(v, other(a), 0, a); }},
    {"eq", [](const Value& v, const Arguments& a) { return equal(v, other(a)); }},
    {"equalto", [](const Value& v, const Arguments& a) { return equal(v, other(a)); }},
    {"escaped", [](const Value& v, const Arguments&) { return v.is_markup(); }},
    {"even", [](const Value& v, const Arguments& a) { return leaves(v, std::int64_t{2}, 0, a); }},
    {"false", [](const Value& v, const Arguments&) { return v.is_bool() && !v.boolean(); }},
    {"filter", [](const Value& v, const Arguments&) { return is_filter(name_in(v)); }},
    {"float", [](const Value& v, const Arguments&) { return v.is_float(); }},
    {"ge", [](const Value& v, const Arguments& a) { return !less(v, other(a)); }},
    {"greaterthan", [](const Value& v, const Arguments& a) { return less(other(a), v); }},
    {"gt", [](const Value& v, const Arguments& a) { return less(other(a), v); }},
    {"in", [](const Value& v, const Arguments& a) { return contains(other(a), v); }},
    {"integer", [](const Value& v, const Arguments&) { return v.is_integer(); }},
    {"iterable", [](const Value& v, const Arguments&) { return is_iterable(v); }},
    {"le", [](const Value& v, const Arguments& a) { return !less(other(a), v); }},
    {"lessthan", [](const Value& v, const Arguments& a) { return less(v, other(a)); }},
    {"lower", [](const Value& v, const Arguments&) { return is_cased(text_of(v), LetterCase::lower); }},
    {"lt", [](const Value& v, const Arguments& a) { return less(v, other(a)); }},
    {"mapping", [](const Value& v, const Arguments&) { return v.is_map(); }},
    {"ne", [](const Value& v, const Arguments& a) { return !equal(v, other(a)); }},
    {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
    {"number", [](const Value& v, const Arguments&) { return v.is_number(); }},
    {"odd", [](const Value& v, const Arguments& a) { return leaves(v, std::int64_t{2}, 1, a); }},
    {"sameas", [](const Value& v, const Arguments& a) { return is_same(v, other(a)); }},
    {"sequence", [](const Value& v,
                    const Arguments&) { return v.is_indexed() || v.is_map() || v.is_string() || v.is_undefined(); }},
    {"string", [](const Value& v, const Arguments&) { return v.is_string(); }},
    {"test", [](const Value& v, const Arguments&) { return is_test(name_in(v)); }},
    {"true", [](const Value& v, const Arguments&) { return v.is_bool() && v.boolean(); }},
    {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
    {"upper", [](const Value& v, const Arguments&) { return is_cased(text_of(v), LetterCase::upper); }},
};

}  // namespace

bool is_test(std::string_view name) noexcept {
  return std::ranges::find(kTests, name, &Test::name) != std::end(kTests);
}

bool apply_test(std::string_view name, const Value& input, const Arguments& arguments) {
  const auto* test = std::ranges::find(kTests, name, &Test::name);
  QUENCH_CHECK_AS(ErrorCode::unsupported, test != std::end(kTests), "the test '{}' is not supported", name);
  return test->apply(input, arguments);
}

}  // namespace quench::jinja
