#pragma once
// Learning-rate schedules as pure functions of the step: a resumed run needs no schedule state. Step i (0-based) is the
// (i+1)-th optimizer update of T.
// With W warm-up steps, r = min_lr_ratio and a decay of D steps from step S, the factor on the peak rate is
// i < W: (i + 1) / W, linear warm-up; its last step has the peak rate
// i < S: 1
// i < S + D: r + (1 - r) * shape((i - S) / D), shape(0) = 1, shape(1) = 0
// i >= S + D: r, or 1 if D = 0
// with shape(p) = 1 - p (linear), (1 + cos(pi p)) / 2 (cosine), 1 - sqrt(p) (sqrt). r would be reached at step T: no
// update has a rate of zero. As torchtitan's linear_warmup_stable_decay and, except for the warm-up i / W, Hugging
// Face's get_*_schedule_with_warmup. Cosine with a floor: Hoffmann et al. 2022 (Chinchilla); warm-up, stable, decay: Hu
// et al. 2024 (MiniCPM); sqrt: Haegele et al. 2024.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/system/choice_table.h"

namespace quench {

// Decay from the peak to the floor.
enum class LrDecayShape { linear, cosine, sqrt };

// Entry of the table of schedules.
struct LrScheduleEntry {
  enum class Decay {
    none,          // warm-up, then the peak: D = 0
    after_warmup,  // S = W, D = decay_steps or T - W
    at_end,        // D = decay_steps, S = T - D
  };
  std::string_view name;
  std::string_view summary;
  Decay decay = Decay::none;
  double (*shape)(double progress) = nullptr;  // null: that of LrScheduleOptions::decay_shape
  double decay_ratio = 0;                      // at_end: default D / T
};

// Default first.
[[nodiscard]] const ChoiceTable<LrScheduleEntry>& lr_schedules();

// Schedule of a run; rates are per optimizer step.
struct LrScheduleOptions {
  std::string name = "cosine";  // one of lr_schedules()
  double peak_lr = 3e-4;
  std::int64_t total_steps = 1;
  std::int64_t warmup_steps = 0;
  double min_lr_ratio = 0.0;  // r, in [0, 1]; no effect without a decay
  // at_end: at most T - W. after_warmup: may exceed the run.
  std::optional<std::int64_t> decay_steps{};
  LrDecayShape decay_shape = LrDecayShape::linear;
};

class LrSchedule {
 public:
  // Throws Error(bad_config).
  explicit LrSchedule(const LrScheduleOptions& options);

  // Throws Error(invalid_argument) if negative.
  [[nodiscard]] double lr(std::int64_t step) const { return options_.peak_lr * factor(step); }
  // lr(step) / peak_lr, in [0, 1].
  [[nodiscard]] double factor(std::int64_t step) const;

  [[nodiscard]] const LrScheduleOptions& options() const noexcept { return options_; }
  [[nodiscard]] std::int64_t decay_start() const noexcept { return decay_start_; }
  [[nodiscard]] std::int64_t decay_steps() const noexcept { return decay_steps_; }

 private:
  LrScheduleOptions options_;
  std::int64_t decay_start_ = 0;
  std::int64_t decay_steps_ = 0;
  double (*shape_)(double progress) = nullptr;
};

}  // namespace quench
