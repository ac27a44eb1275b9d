// JSON values as Python objects, and process and signal checks.

#include <unistd.h>

#include "core/system/check.h"
#include "python/src/bindings.h"

namespace quench::python {
namespace {

constexpr int kMaxDepth = 64;

std::string text_of(nb::handle value) {
  Py_ssize_t bytes = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &bytes);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<std::size_t>(bytes)};
}

Json integer(nb::handle value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  QUENCH_CHECK(overflow == 0, "an integer beyond 64 bits: {}", nb::repr(value).c_str());
  return number;
}

Json convert(nb::handle value, std::string_view what, int depth) {
  QUENCH_CHECK(depth < kMaxDepth, "{}: nested deeper than {} levels", what, kMaxDepth);
  if (value.is_none()) return {};
  if (PyBool_Check(value.ptr())) return value.ptr() == Py_True;
  if (PyLong_Check(value.ptr())) return integer(value);
  if (PyFloat_Check(value.ptr())) return nb::cast<double>(value);
  if (PyUnicode_Check(value.ptr())) return text_of(value);
  if (nb::hasattr(value, "__fspath__")) return text_of(value.attr("__fspath__")());
  if (PyMapping_Check(value.ptr()) != 0 && nb::hasattr(value, "items")) {
    Json object = Json::object();
    for (const nb::handle item : value.attr("items")()) {
      const nb::object key = item[0];
      QUENCH_CHECK(PyUnicode_Check(key.ptr()), "{}: a key is {}, expected text", what, nb::repr(key).c_str());
      const std::string name = text_of(key);
      object.set(name, convert(item[1], what, depth + 1));
    }
    return object;
  }
  if (nb::hasattr(value, "tolist")) return convert(value.attr("tolist")(), what, depth + 1);  // NumPy scalars, arrays
  if (PySequence_Check(value.ptr()) != 0 && !PyBytes_Check(value.ptr())) {
    Json array = Json::array();
    for (const nb::handle item : value) array.push_back(convert(item, what, depth + 1));
    return array;
  }
  QUENCH_FAIL(ErrorCode::invalid_argument, "{}: {} is no value of JSON", what, nb::repr(value.type()).c_str());
}

}  // namespace

nb::object to_python(const Json& value) {
  if (value.is_null()) return nb::none();
  if (value.is_bool()) return nb::cast(value.as_bool());
  if (value.is_integer()) {
    const bool fits = value.as_double() < 9.2e18;
    return fits ? nb::cast(value.as_int()) : nb::cast(value.as_uint());
  }
  if (value.is_number()) return nb::cast(value.as_double());
  if (value.is_string()) return nb::cast(value.as_string());
  if (value.is_array()) {
    nb::list list;
    for (const Json& item : value.as_array()) list.append(to_python(item));
    return list;
  }
  nb::dict dict;
  for (const auto& [key, item] : value.as_object()) dict[nb::cast(key)] = to_python(item);
  return dict;
}

Json to_json(nb::handle value, std::string_view what) {
  return convert(value, what, 0);
}

void check_python_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

OwnProcess::OwnProcess() : process_(::getpid()) {}

void OwnProcess::require() const {
  QUENCH_CHECK_AS(
      ErrorCode::unsupported, ::getpid() == process_,
      "this process was forked from the one that opened the object, whose threads and GPU it does not have: "
      "open it here, or start processes with multiprocessing's method \"spawn\"");
}

}  // namespace quench::python
