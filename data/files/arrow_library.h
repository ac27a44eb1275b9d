#pragma once
// Loader of the library that reads Parquet and Arrow files.

#include <string>

#include "data/arrow/arrow_interface.h"

namespace quench {

// Plug-in libquench_arrow.so: in the program's folder, ../lib/quench, the folder of libquench_data.so, or
// QUENCH_ARROW_LIBRARY. Null, with the reason in `missing`, if absent or of another version.
[[nodiscard]] const QuenchArrowFunctions* arrow_functions(std::string& missing);

}  // namespace quench
