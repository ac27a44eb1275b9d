#pragma once
// Line charts over the training step as inline SVG: axes with ticks, legend, and a guide line with values at the
// pointer (also as <title>). Colours and log switch: page_style.h.

#include <string>
#include <vector>

#include "train/report/axis.h"
#include "train/report/curve.h"

namespace quench {

struct ChartSeries {
  enum class Look {
    line,
    faint,  // thin background line, e.g. raw values under their average
    dashed,
    dotted,  // line with point markers, for few points
  };

  std::string label;
  Curve points;
  int color = 0;  // palette index 0 .. 7
  Look look = Look::line;
};

// Marked step on the x axis and above the plot.
struct ChartMark {
  enum class Kind {
    checkpoint,  // diamond on the axis
    resume,      // dashed vertical line: resumes and rollbacks
    spike,       // triangle above the plot: spikes and skipped steps
  };
  double step = 0;
  Kind kind = Kind::checkpoint;
  std::string text;  // "resumed"; shown with the step under the pointer
};

struct ChartOptions {
  std::string title;
  std::string unit;             // after the title: "tokens/s", "GiB"
  std::vector<double> flagged;  // steps with non-finite values, marked on the x axis
  std::vector<ChartMark> marks = {};
  bool log_switch = false;  // adds a logarithmic view if there are positive values
  bool from_zero = false;   // linear y axis starts at 0
};

// <figure> element; empty without values. `id`: letters, unique within the page.
[[nodiscard]] std::string render_chart(const ChartOptions& options, const std::vector<ChartSeries>& series,
                                       const std::string& id);

}  // namespace quench
