#pragma once
// The module that reads Parquet and Arrow files, opened when it is first asked for (data/arrow/arrow_interface.h).

#include <string>

#include "data/arrow/arrow_interface.h"

namespace quench {

// "libquench_arrow.so": next to the program, in ../lib/quench from there, or what QUENCH_ARROW_LIBRARY names. Null with
// the reason in `missing` where there is none, or one of another version.
[[nodiscard]] const QuenchArrowFunctions* arrow_functions(std::string& missing);

}  // namespace quench
