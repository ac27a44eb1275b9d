#pragma once
// Console metrics: one line per record on standard output, progress bar on standard error if a terminal. No colours or
// escape sequences: piped output is identical.

#include <chrono>
#include <functional>
#include <string>

#include "train/metrics/metrics_sink.h"

namespace quench {

enum class ProgressDisplay { automatic, on, off };

struct ConsoleOptions {
  int output = 1;  // for lines, unless `print` is set
  std::function<void(std::string_view)> print = {};
  int terminal = 2;  // for the bar
  // automatic: if `terminal` is one; launcher workers write to pipes.
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
  // At most 10 redraws per second. A lost terminal ends the bar, not the run.
  void progress(const Progress& progress) override;
  void rewind(std::int64_t) override {}  // printed lines stay
  void finish() override;

 private:
  void print(const std::string& line);
  void draw(const std::string& bar);
  void erase();

  ConsoleOptions options_;
  bool show_bar_ = false;
  bool unicode_ = false;
  std::string bar_;  // on the terminal; empty when erased
  std::chrono::steady_clock::time_point drawn_{};
};

// Line breaks and control characters become blanks, invalid UTF-8 U+FFFD; truncated to max_bytes with an ellipsis.
[[nodiscard]] std::string one_line(std::string_view text, std::size_t max_bytes);

}  // namespace quench
