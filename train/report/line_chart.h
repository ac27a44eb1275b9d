#pragma once
// Line charts over the training step as inline SVG: axes with ticks, legend, and per position of the pointer a guide
// line with the values there (also as <title>, for readers without a pointer). Colours and the log switch come from
// page_style.h.

#include <string>
#include <vector>

#include "train/report/axis.h"
#include "train/report/curve.h"

namespace quench {

struct ChartSeries {
  enum class Look {
    line,
    faint,  // a thin background line, e.g. raw values behind their average
    dashed,
    dotted,  // line with a marker at each point, for few points
  };

  std::string label;
  Curve points;
  int color = 0;  // 0 .. 7, of the page's palette
  Look look = Look::line;
};

// A step that stands out, marked on the x axis and above the plot.
struct ChartMark {
  enum class Kind {
    checkpoint,  // a diamond on the axis
    resume,      // a dashed line over the height of the plot: resumes and rollbacks
    spike,       // a triangle above the plot: spikes and skipped steps
  };
  double step = 0;
  Kind kind = Kind::checkpoint;
  std::string text;  // "resumed"; shown with the step under the pointer
};

struct ChartOptions {
  std::string title;
  std::string unit;             // behind the title: "tokens/s", "GiB"
  std::vector<double> flagged;  // steps marked on the x axis: non-finite values
  std::vector<ChartMark> marks = {};
  bool log_switch = false;  // adds a second view with a logarithmic y axis, where positive values allow one
  bool from_zero = false;   // the linear y axis starts at 0
};

// A <figure>; empty when no series has a value. `id` is unique within the page and made of letters.
[[nodiscard]] std::string render_chart(const ChartOptions& options, const std::vector<ChartSeries>& series,
                                       const std::string& id);

}  // namespace quench
