#pragma once
// Lazy loading of the plug-in for Parquet and Arrow files (data/arrow/arrow_interface.h).

#include <string>

#include "data/arrow/arrow_interface.h"

namespace quench {

// "libquench_arrow.so": in the program's folder, ../lib/quench, or at QUENCH_ARROW_LIBRARY. Null with the reason in
// `missing` if absent or of another version.
[[nodiscard]] const QuenchArrowFunctions* arrow_functions(std::string& missing);

}  // namespace quench
