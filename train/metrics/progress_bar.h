#pragma once
// Progress bar of a terminal: one line of text.

#include <string>

#include "train/metrics/metrics_sink.h"

namespace quench {

// "[=====>        ] 120/1000 12%  loss 3.28  tok/s 47,960  eta 0:12:31" in at most `columns` columns; parts are dropped
// on narrow terminals, the percentage last. The step alone for an unknown total. `unicode`: block characters (one
// column each). No line break or escape sequence.
[[nodiscard]] std::string render_progress_bar(const Progress& progress, int columns, bool unicode);

[[nodiscard]] int progress_bar_columns(const std::string& text);

}  // namespace quench
