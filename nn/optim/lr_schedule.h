#pragma once
// Learning-rate schedules as pure functions of the step.
//
// Steps are 0-based: step i is the (i+1)-th optimizer update, and a run of T updates asks for steps 0 .. T-1. Nothing
// is carried from one step to the next, so a resumed run needs no schedule state.
//
// With W warm-up steps, T total steps, r = min_lr_ratio and a decay of D steps that starts at step S, the factor on the
// peak rate is
//   i < W          (i + 1) / W                       linear warm-up; the last warm-up step already has the peak
//   i < S          1                                 stable
//   i < S + D      r + (1 - r) * shape((i - S) / D)  shape(0) = 1, shape(1) = 0
//   i >= S + D     r, or 1 where D = 0
// with shape(p) = 1 - p (linear), (1 + cos(pi p)) / 2 (cosine), 1 - sqrt(p) (sqrt). A decay that lasts to the end of
// the run would reach r at step T, so no update has a rate of zero. These are torchtitan's linear_warmup_stable_decay
// and, for cosine and linear after the warm-up, Hugging Face's get_*_schedule_with_warmup (whose warm-up is i / W).
// Cosine down to a floor: Hoffmann et al. 2022 (Chinchilla); warm-up, stable, decay: Hu et al. 2024 (MiniCPM); sqrt
// decay: Haegele et al. 2024.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/system/choice_table.h"

namespace quench {

enum class LrDecayShape { linear, cosine, sqrt };

struct LrScheduleEntry {
  enum class Decay {
    none,          // warm-up, then the peak: D = 0
    after_warmup,  // S = W, D = decay_steps or T - W
    at_end,        // warm-up, stable, then a decay that ends with the run: D = decay_steps, S = T - D
  };
  std::string_view name;
  std::string_view summary;  // for help and documents
  Decay decay = Decay::none;
  double (*shape)(double progress) = nullptr;  // null: that of LrScheduleOptions::decay_shape
  double decay_ratio = 0;                      // at_end: D over T where nothing else is said
};

// All schedules, the default first.
[[nodiscard]] const ChoiceTable<LrScheduleEntry>& lr_schedules();

struct LrScheduleOptions {
  std::string name = "cosine";  // one of lr_schedules()
  double peak_lr = 3e-4;
  std::int64_t total_steps = 1;
  std::int64_t warmup_steps = 0;
  double min_lr_ratio = 0.0;  // r, in [0, 1]; no effect without a decay
  // D. at_end: at most T - W. after_warmup: may end before or after the run.
  std::optional<std::int64_t> decay_steps;
  LrDecayShape decay_shape = LrDecayShape::linear;  // of schedules without a shape of their own
};

class LrSchedule {
 public:
  // Throws Error(bad_config) naming the values when they cannot make a schedule.
  explicit LrSchedule(const LrScheduleOptions& options);

  // The learning rate of 0-based step `step`; throws Error(invalid_argument) for a negative one.
  [[nodiscard]] double lr(std::int64_t step) const { return options_.peak_lr * factor(step); }
  // lr(step) / peak_lr, in [0, 1].
  [[nodiscard]] double factor(std::int64_t step) const;

  [[nodiscard]] const LrScheduleOptions& options() const noexcept { return options_; }
  // S and D above.
  [[nodiscard]] std::int64_t decay_start() const noexcept { return decay_start_; }
  [[nodiscard]] std::int64_t decay_steps() const noexcept { return decay_steps_; }

 private:
  LrScheduleOptions options_;
  std::int64_t decay_start_ = 0;
  std::int64_t decay_steps_ = 0;
  double (*shape_)(double progress) = nullptr;
};

}  // namespace quench
