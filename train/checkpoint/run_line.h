#pragma once
// Checkpoints of a folder that belong to a run's line, which a rollback or an earlier start cuts.

#include <cstdint>
#include <optional>
#include <set>

namespace quench {

// Checkpoints of a run's line: up to the step that the process continued from, and those it has saved since. Others
// were abandoned when the run went back.
struct RunLine {
  std::optional<std::int64_t> from{};  // nullopt: no checkpoint in the folder; older steps than a saved one count
  std::set<std::int64_t> saved{};      // by this process, after `from`

  // step-<other> stays in the line when step-<step> is saved.
  [[nodiscard]] bool keeps(std::int64_t other, std::int64_t step) const {
    if (other > step) return false;
    return saved.contains(other) || (from ? other <= *from : other < step);
  }
  // Continues from `step`.
  void go_back(std::int64_t step) {
    from = step;
    saved.erase(saved.upper_bound(step), saved.end());
  }
};

}  // namespace quench
