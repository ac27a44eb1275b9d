#pragma once
// Times of a run's start, by phase.

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quench {

// Wall time of a run's start by phase, from the creation of the process (Linux; elsewhere from construction).
class StartTimes {
 public:
  StartTimes();

  // Ends a phase, which began at the end of the last one.
  void mark(std::string_view phase);
  // Ends a phase with the evaluation of the argument.
  template <class T>
  [[nodiscard]] T after(std::string_view phase, T value) {
    mark(phase);
    return value;
  }
  [[nodiscard]] double seconds() const noexcept { return total_; }  // until the last mark
  // "start: 5.60 s to the end of step 1: program 0.35, ..."; phases below 0.05 s are one, "other".
  [[nodiscard]] std::string to_text(std::int64_t step) const;

 private:
  std::chrono::steady_clock::time_point last_;
  double total_ = 0;
  std::vector<std::pair<std::string, double>> phases_;
};

}  // namespace quench
