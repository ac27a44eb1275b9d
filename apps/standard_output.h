#pragma once
// Stdout for all printers: escapes control sequences in text from files, and reports failed writes at exit.

namespace quench {

// Replaces `stdout` by a stream that escapes according to core/system/printable.h. Call once, first in main, after
// open_standard_streams().
void install_standard_output();

// Disables escaping from now on unless stdout is a terminal: for text results.
void print_unchanged();

// Errno of the first failed write so far, or 0.
[[nodiscard]] int standard_output_error();

// Flushes. Returns 0, or the errno of the first failed write: EPIPE for a closed reader.
[[nodiscard]] int finish_standard_output();

}  // namespace quench
