#include "nn/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/system/check.h"

namespace quench {
namespace {

double linear(double progress) {
  return 1.0 - progress;
}
double cosine(double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}
double one_less_sqrt(double progress) {
  return 1.0 - std::sqrt(progress);
}

double (*shape_of(LrDecayShape shape))(double) {
  switch (shape) {
    case LrDecayShape::linear: return linear;
    case LrDecayShape::cosine: return cosine;
    case LrDecayShape::sqrt: return one_less_sqrt;
  }
  return linear;
}

}  // namespace

const ChoiceTable<LrScheduleEntry>& lr_schedules() {
  using enum LrScheduleEntry::Decay;
  static const ChoiceTable<LrScheduleEntry> table(
      "learning-rate schedule", {{"cosine", "half a cosine from the peak to the floor", after_warmup, cosine},
                                 {"linear", "a straight line from the peak to the floor", after_warmup, linear},
                                 {"wsd", "the peak, then a decay at the end of the run", at_end, nullptr, 0.2},
                                 {"constant", "the peak", none}});
  return table;
}

LrSchedule::LrSchedule(const LrScheduleOptions& options) : options_(options) {
  constexpr auto kBad = ErrorCode::bad_config;
  const std::int64_t total = options.total_steps, warmup = options.warmup_steps;
  QUENCH_CHECK_AS(kBad, std::isfinite(options.peak_lr) && options.peak_lr >= 0,
                  "the learning rate must be 0 or a positive number, got {}", options.peak_lr);
  QUENCH_CHECK_AS(kBad, total >= 1, "a learning-rate schedule needs at least 1 training step, got {}", total);
  QUENCH_CHECK_AS(kBad, warmup >= 0 && warmup <= total,
                  "warmup_steps must lie between 0 and the {} training steps, got {}", total, warmup);
  QUENCH_CHECK_AS(kBad, options.min_lr_ratio >= 0 && options.min_lr_ratio <= 1,
                  "min_lr_ratio must lie between 0 and 1, got {}", options.min_lr_ratio);
  const LrScheduleEntry& schedule = lr_schedules().require(options.name);
  QUENCH_CHECK_AS(kBad, !options.decay_steps || schedule.decay != LrScheduleEntry::Decay::none,
                  "decay_steps is set to {}, but the {} schedule has no decay", *options.decay_steps, schedule.name);
  QUENCH_CHECK_AS(kBad, !options.decay_steps || *options.decay_steps >= 1, "decay_steps must be at least 1, got {}",
                  *options.decay_steps);
  const std::int64_t after_warmup = total - warmup;
  shape_ = schedule.shape != nullptr ? schedule.shape : shape_of(options.decay_shape);
  switch (schedule.decay) {
    case LrScheduleEntry::Decay::none: break;
    case LrScheduleEntry::Decay::after_warmup:
      decay_steps_ = options.decay_steps.value_or(after_warmup);
      decay_start_ = warmup;
      break;
    case LrScheduleEntry::Decay::at_end: {
      const auto usual = static_cast<std::int64_t>(schedule.decay_ratio * static_cast<double>(total));
      decay_steps_ = options.decay_steps.value_or(std::min(std::max<std::int64_t>(usual, 1), after_warmup));
      decay_start_ = total - decay_steps_;
      QUENCH_CHECK_AS(kBad, decay_steps_ <= after_warmup,
                      "decay_steps must lie between 1 and {} ({} training steps less {} of warm-up), got {}",
                      after_warmup, total, warmup, decay_steps_);
      break;
    }
  }
}

double LrSchedule::factor(std::int64_t step) const {
  QUENCH_CHECK(step >= 0, "the learning rate was asked for step {}; steps start at 0", step);
  if (step < options_.warmup_steps) return static_cast<double>(step + 1) / static_cast<double>(options_.warmup_steps);
  if (decay_steps_ == 0 || step < decay_start_) return 1.0;
  const double progress = std::min(1.0, static_cast<double>(step - decay_start_) / static_cast<double>(decay_steps_));
  return options_.min_lr_ratio + (1.0 - options_.min_lr_ratio) * shape_(progress);
}

}  // namespace quench
