#pragma once
// Standard output of all verbs: text from files cannot command the terminal, and a write that failed is
// noticed at the end.

namespace quench {

// Redirects `stdout` to a stream of our own. What goes through it is shown as core/system/printable.h says. Call once,
// first in main, after open_standard_streams().
void install_standard_output();

// From here on what is printed leaves as it is, unless standard output is a terminal: for text that is a result.
void print_unchanged();

// Writes what is buffered. Returns 0, or the errno of the first write since the start that failed: EPIPE where the
// reader has gone.
[[nodiscard]] int finish_standard_output();

}  // namespace quench
