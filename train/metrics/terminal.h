#pragma once
// Output to descriptors that may be terminals, pipes whose reader has gone, or closed.

#include <string_view>

namespace quench {

// Writes all of `text`, waiting where the descriptor is non-blocking. Never raises SIGPIPE, whatever its disposition.
// Returns 0, or the errno of the write that failed.
[[nodiscard]] int try_write_to_descriptor(int descriptor, std::string_view text) noexcept;

// The same; throws Error(io or no_space), for a closed pipe or descriptor too.
void write_to_descriptor(int descriptor, std::string_view text);

// Whether a display that overwrites its line makes sense there: a terminal, and TERM is not "dumb".
[[nodiscard]] bool is_interactive(int descriptor);

// Width of the terminal; $COLUMNS or 80 where it does not say.
[[nodiscard]] int terminal_columns(int descriptor);

// Whether the locale's character set is UTF-8 (LC_ALL, LC_CTYPE, LANG in this order).
[[nodiscard]] bool is_utf8_locale();

// Opens /dev/null for each of the descriptors 0, 1, 2 that is closed. Call first in main: otherwise the next file that
// the program opens takes the free number and receives what is meant for the console.
void open_standard_streams();

}  // namespace quench
