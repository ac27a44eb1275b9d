#pragma once
// Line charts as inline SVG: axes, legend, guide line with values at the pointer (also as <title>). Colours and log
// switch: page_style.h.

#include <string>
#include <vector>

#include "train/report/axis.h"
#include "train/report/curve.h"

namespace quench {

struct ChartSeries {
  enum class Look {
    line,
    faint,  // thin, e.g. raw values under their average
    dashed,
    dotted,  // with point markers, for few points
  };

  std::string label;
  Curve points;
  int color = 0;  // 0 .. 7
  Look look = Look::line;
};

struct ChartMark {
  enum class Kind {
    checkpoint,  // diamond on the axis
    resume,      // dashed line: resumes and rollbacks
    spike,       // triangle: spikes and skipped steps
  };
  double step = 0;
  Kind kind = Kind::checkpoint;
  std::string text;  // "resumed"; under the pointer
};

struct ChartOptions {
  std::string title;
  std::string unit;             // "tokens/s", "GiB"
  std::vector<double> flagged;  // steps with non-finite values
  std::vector<ChartMark> marks = {};
  bool log_switch = false;  // logarithmic view if there are positive values
  bool from_zero = false;   // linear y axis
};

// Empty without values. `id`: letters, unique within the page.
[[nodiscard]] std::string render_chart(const ChartOptions& options, const std::vector<ChartSeries>& series,
                                       const std::string& id);

}  // namespace quench
