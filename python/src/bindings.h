#pragma once
// Parts of the module, each registered by one function, and what they share.

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "core/json/json.h"

namespace quench::python {

namespace nb = nanobind;

// quench.Error, and the conversion of library errors to it.
void bind_errors(nb::module_& module);
void bind_program(nb::module_& module);
void bind_tokenizer(nb::module_& module);
void bind_model(nb::module_& module);
void bind_trainer(nb::module_& module);

// Runs `work` without the interpreter lock: other Python threads continue.
template <class Work>
auto without_gil(Work&& work) {
  const nb::gil_scoped_release release;
  return std::forward<Work>(work)();
}

// Raises what a signal handler of Python raised, such as KeyboardInterrupt. Takes the interpreter lock.
void check_python_signals();

[[nodiscard]] nb::object to_python(const Json& value);
// From None, bool, int, float, str, mappings with text keys, and sequences. Throws invalid_argument naming `what` and
// the type for others.
[[nodiscard]] Json to_json(nb::handle value, std::string_view what);

// The process that made an object: one that is forked later may not use it, since neither the GPU nor the CPU threads
// of its parent exist there.
class OwnProcess {
 public:
  OwnProcess();
  // Throws unsupported in another process.
  void require() const;

 private:
  int process_;
};

}  // namespace quench::python
