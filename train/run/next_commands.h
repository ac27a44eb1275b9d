#pragma once
// Commands proposed at the end of a run: each runs as printed, from the working directory of the run.

#include <string>
#include <string_view>
#include <vector>

#include "train/run/end_report.h"

namespace quench {

// A word of a POSIX shell; control characters as $'\x1b'.
[[nodiscard]] std::string shell_word(std::string_view text);

// "quench" if $PATH leads to this program, else its path as it was started; "quench" for other programs with the
// library.
[[nodiscard]] std::string program_word();

// Without line breaks.
[[nodiscard]] std::vector<std::string> next_commands(const RunConfig& config, const RunEnd& end);

// Repeats the export of a run at its end with export.method auto; empty without a checkpoint to do so from.
[[nodiscard]] std::string better_export_command(const RunConfig& config, const RunEnd& end);

}  // namespace quench
