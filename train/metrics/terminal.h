#pragma once
// Output to descriptors: terminals, broken pipes, closed descriptors.

#include <string_view>

namespace quench {

// Writes all of `text`, blocking even on a non-blocking descriptor. Never raises SIGPIPE. Returns 0 or errno.
[[nodiscard]] int try_write_to_descriptor(int descriptor, std::string_view text) noexcept;

// The same; throws io or no_space, also for a closed pipe or descriptor.
void write_to_descriptor(int descriptor, std::string_view text);

// True for a terminal with TERM other than "dumb".
[[nodiscard]] bool is_interactive(int descriptor);

// Terminal width; fallback $COLUMNS or 80.
[[nodiscard]] int terminal_columns(int descriptor);

// True for a UTF-8 locale (LC_ALL, LC_CTYPE, LANG in this order).
[[nodiscard]] bool is_utf8_locale();

// Opens /dev/null for closed descriptors 0, 1, 2. Call first in main: the next opened file would otherwise receive
// console output.
void open_standard_streams();

}  // namespace quench
