#pragma once
// Metrics for people: one line a record on standard output, and a progress bar on standard error while a terminal is
// there to show it. Nothing is coloured and no escape sequence is written, so output is the same piped or not.

#include <chrono>
#include <functional>
#include <string>

#include "train/metrics/metrics_sink.h"

namespace quench {

enum class ProgressDisplay { automatic, on, off };

struct ConsoleOptions {
  int output = 1;  // descriptor of the lines, unless `print` takes them
  std::function<void(std::string_view)> print = {};
  int terminal = 2;  // descriptor of the bar
  // automatic: where `terminal` is one. A launcher that prefixes ranks hands its workers pipes, hence no bar.
  ProgressDisplay progress = ProgressDisplay::automatic;
};

class ConsoleSink final : public MetricsSink {
 public:
  explicit ConsoleSink(const ConsoleOptions& options = {});
  ~ConsoleSink() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "standard output"; }
  void step(const StepMetrics& metrics) override;
  void evaluation(const EvaluationMetrics& metrics) override;
  void sample(const SampleRecord& sample) override;
  // Redraws at most ten times a second. A terminal that goes away ends the bar, not the run.
  void progress(const Progress& progress) override;
  void rewind(std::int64_t) override {}  // what is printed stays printed
  void finish() override;

 private:
  void print(const std::string& line);
  void draw(const std::string& bar);
  void erase();

  ConsoleOptions options_;
  bool show_bar_ = false;
  bool unicode_ = false;
  std::string bar_;  // as it stands on the terminal; empty when erased
  std::chrono::steady_clock::time_point drawn_{};
};

// A text on one terminal line: line breaks and control characters become blanks, invalid UTF-8 U+FFFD, and what
// exceeds max_bytes an ellipsis.
[[nodiscard]] std::string one_line(std::string_view text, std::size_t max_bytes);

}  // namespace quench
