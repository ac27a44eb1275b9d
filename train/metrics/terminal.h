#pragma once
// Output to descriptors.

#include <string_view>

namespace quench {

// Blocking even on a non-blocking descriptor. Never raises SIGPIPE. 0 or errno.
[[nodiscard]] int try_write_to_descriptor(int descriptor, std::string_view text) noexcept;

// Throws io or no_space, also for a closed pipe or descriptor.
void write_to_descriptor(int descriptor, std::string_view text);

// Terminal with TERM other than "dumb".
[[nodiscard]] bool is_interactive(int descriptor);

// Fallback $COLUMNS or 80.
[[nodiscard]] int terminal_columns(int descriptor);

// LC_ALL, LC_CTYPE, LANG in this order.
[[nodiscard]] bool is_utf8_locale();

// /dev/null for closed descriptors 0, 1, 2. First in main: the next opened file would receive console output.
void open_standard_streams();

}  // namespace quench
