// quench.Error: the library's message, and its code as text.

#include <algorithm>

#include "core/system/check.h"
#include "python/src/bindings.h"

namespace quench::python {
namespace {

// Lives as long as the interpreter.
PyObject* error_type = nullptr;

void raise_error(const Error& error) {
  const nb::str message(error.what());
  const nb::object instance = nb::steal(PyObject_CallFunctionObjArgs(error_type, message.ptr(), nullptr));
  if (!instance.is_valid()) return;           // the reason is set
  std::string code(to_string(error.code()));  // "not found"
  std::ranges::replace(code, ' ', '_');
  instance.attr("code") = nb::str(code.c_str());
  PyErr_SetObject(error_type, instance.ptr());
}

}  // namespace

void bind_errors(nb::module_& module) {
  error_type = PyErr_NewExceptionWithDoc("quench.Error",
                                         "Failure of the library, with the program's message.\n\n"
                                         "``code`` tells the kind: \"invalid_argument\", \"bad_config\", "
                                         "\"not_found\", \"corrupt\", \"io\", \"no_space\",\n"
                                         "\"out_of_memory\", \"unsupported\", \"nonfinite\", \"locked\" or \"failed\".",
                                         PyExc_RuntimeError, nullptr);
  nb::object type = nb::borrow(error_type);
  type.attr("code") = "failed";
  module.attr("Error") = type;
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      raise_error(error);
    }
  });
}

}  // namespace quench::python
