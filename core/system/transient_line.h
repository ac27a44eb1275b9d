#pragma once
// Row of the terminal on standard error that later output replaces, such as a progress bar; the cursor is in its first
// column.

#include <string>

namespace quench {

// Columns that it takes; 0: none. Thread-safe.
void set_transient_line(int columns) noexcept;
// Text that blanks it, for output to write first; empty without one. It is then gone. Thread-safe.
[[nodiscard]] std::string take_transient_line();

}  // namespace quench
