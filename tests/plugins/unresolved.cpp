// Calls a function that no release has.
#include "quench/plugin.h"

QUENCH_PLUGIN("unresolved", "1.0")

namespace quench {
void function_of_no_release();
}
void call_it() {
  quench::function_of_no_release();
}
