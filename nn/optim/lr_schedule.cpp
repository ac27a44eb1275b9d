#include "nn/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/system/check.h"

namespace quench {
namespace {

double decay(LrDecayShape shape, double progress) {
  switch (shape) {
    case LrDecayShape::linear: return 1.0 - progress;
    case LrDecayShape::cosine: return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    case LrDecayShape::sqrt: return 1.0 - std::sqrt(progress);
  }
  return 1.0;
}

}  // namespace

std::string_view to_string(LrScheduleKind kind) noexcept {
  switch (kind) {
    case LrScheduleKind::constant: return "constant";
    case LrScheduleKind::linear: return "linear";
    case LrScheduleKind::cosine: return "cosine";
    case LrScheduleKind::wsd: return "wsd";
  }
  return "unknown";
}

std::string_view to_string(LrDecayShape shape) noexcept {
  switch (shape) {
    case LrDecayShape::linear: return "linear";
    case LrDecayShape::cosine: return "cosine";
    case LrDecayShape::sqrt: return "sqrt";
  }
  return "unknown";
}

LrScheduleKind parse_lr_schedule_kind(std::string_view name) {
  for (const auto kind :
       {LrScheduleKind::constant, LrScheduleKind::linear, LrScheduleKind::cosine, LrScheduleKind::wsd})
    if (name == to_string(kind)) return kind;
  QUENCH_FAIL(ErrorCode::bad_config, "learning-rate schedule '{}' is unknown; use constant, linear, cosine or wsd",
              name);
}

LrDecayShape parse_lr_decay_shape(std::string_view name) {
  for (const auto shape : {LrDecayShape::linear, LrDecayShape::cosine, LrDecayShape::sqrt})
    if (name == to_string(shape)) return shape;
  QUENCH_FAIL(ErrorCode::bad_config, "learning-rate decay shape '{}' is unknown; use linear, cosine or sqrt", name);
}

LrSchedule::LrSchedule(const LrScheduleOptions& options) : options_(options) {
  constexpr auto kBad = ErrorCode::bad_config;
  const std::int64_t total = options.total_steps, warmup = options.warmup_steps;
  QUENCH_CHECK_AS(kBad, std::isfinite(options.peak_lr) && options.peak_lr > 0,
                  "the learning rate must be a positive number, got {}", options.peak_lr);
  QUENCH_CHECK_AS(kBad, total >= 1, "a learning-rate schedule needs at least 1 training step, got {}", total);
  QUENCH_CHECK_AS(kBad, warmup >= 0 && warmup <= total,
                  "warmup_steps must lie between 0 and the {} training steps, got {}", total, warmup);
  QUENCH_CHECK_AS(kBad, options.min_lr_ratio >= 0 && options.min_lr_ratio <= 1,
                  "min_lr_ratio must lie between 0 and 1, got {}", options.min_lr_ratio);
  QUENCH_CHECK_AS(kBad, !options.decay_steps || options.kind != LrScheduleKind::constant,
                  "decay_steps is set to {}, but the constant schedule has no decay", *options.decay_steps);
  QUENCH_CHECK_AS(kBad, !options.decay_steps || *options.decay_steps >= 1, "decay_steps must be at least 1, got {}",
                  *options.decay_steps);
  const std::int64_t after_warmup = total - warmup;
  switch (options.kind) {
    case LrScheduleKind::constant: break;
    case LrScheduleKind::linear:
    case LrScheduleKind::cosine:
      decay_steps_ = options.decay_steps.value_or(after_warmup);
      decay_start_ = warmup;
      shape_ = options.kind == LrScheduleKind::cosine ? LrDecayShape::cosine : LrDecayShape::linear;
      break;
    case LrScheduleKind::wsd:
      decay_steps_ = options.decay_steps.value_or(std::min(std::max<std::int64_t>(total / 5, 1), after_warmup));
      decay_start_ = total - decay_steps_;
      shape_ = options.decay_shape;
      QUENCH_CHECK_AS(kBad, decay_steps_ <= after_warmup,
                      "decay_steps must lie between 1 and {} ({} training steps less {} of warm-up), got {}",
                      after_warmup, total, warmup, decay_steps_);
      break;
  }
}

double LrSchedule::factor(std::int64_t step) const {
  QUENCH_CHECK(step >= 0, "the learning rate was asked for step {}; steps start at 0", step);
  if (step < options_.warmup_steps) return static_cast<double>(step + 1) / static_cast<double>(options_.warmup_steps);
  if (decay_steps_ == 0 || step < decay_start_) return 1.0;
  const double progress = std::min(1.0, static_cast<double>(step - decay_start_) / static_cast<double>(decay_steps_));
  return options_.min_lr_ratio + (1.0 - options_.min_lr_ratio) * decay(shape_, progress);
}

}  // namespace quench
