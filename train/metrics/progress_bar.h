#pragma once
// The text of the progress bar.

#include <string>

#include "train/metrics/metrics_sink.h"

namespace quench {

// "[=====>        ] 120/1000 12%  loss 3.28  tok/s 47,960  eta 0:12:31" in at most `columns` columns: parts are left
// out where the terminal is narrow, the last to go being the percentage. Unknown totals give the step alone. With
// `unicode` the bar is drawn in block characters (one column each). No line break, no escape sequence.
[[nodiscard]] std::string render_progress_bar(const Progress& progress, int columns, bool unicode);

// Columns of a text that render_progress_bar made.
[[nodiscard]] int progress_bar_columns(const std::string& text);

}  // namespace quench
