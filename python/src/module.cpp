// Module quench._quench.

#include "core/system/log.h"
#include "core/system/signals.h"
#include "core/system/version.h"
#include "python/src/bindings.h"
#include "train/doctor/build_info.h"

namespace quench::python {

void bind_program(nb::module_& module) {
  module.attr("__version__") =
      fmt::format("{}.{}.{}", QUENCH_VERSION_MAJOR, QUENCH_VERSION_MINOR, QUENCH_VERSION_PATCH);
  module.def(
      "set_log_level", [](const std::string& level) { set_log_level(level); }, nb::arg("level"),
      "Lowest level of messages on standard error: \"trace\", \"debug\", \"info\", \"warn\", \"error\" or \"off\".");
}

}  // namespace quench::python

NB_MODULE(_quench, module) {
  using namespace quench::python;
  quench::init_logging();
  quench::set_log_level("warn");
  // Python's handlers run on the alternate stack, where there is one.
  quench::give_handlers_a_stack();
  bind_errors(module);
  bind_program(module);
  bind_tokenizer(module);
  bind_model(module);
  bind_trainer(module);
}
