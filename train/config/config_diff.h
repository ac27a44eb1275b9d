#pragma once
// Differences between a checkpoint's config and the resuming run's config, with the resume policy of each key.

#include <string>
#include <vector>

#include "train/config/run_config.h"

namespace quench {

enum class ResumePolicy {
  free,     // may change: learning rate, steps, logging, checkpoint interval, ...
  guarded,  // changes the remaining steps; must be listed in checkpoint.allow_changes
  fixed,    // incompatible with the stored state; never allowed
};

struct ConfigChange {
  std::string key;
  std::string before;  // JSON text; "(unset)" if absent
  std::string after;
  ResumePolicy policy = ResumePolicy::free;
};

// Differences by key in table order. Architectures are compared by config.json fields, so that a preset equals the same
// model inline or in a folder; for an unreadable model folder only the path is compared and weight loading checks
// shapes. `before_model`: the model's config at the time of `before`; the preset or folder may have changed since.
[[nodiscard]] std::vector<ConfigChange> config_diff(const RunConfig& before, const RunConfig& after,
                                                    const Json* before_model = nullptr);

// Changes that forbid resuming: fixed ones, and guarded ones not in after.checkpoint.allow_changes.
[[nodiscard]] std::vector<ConfigChange> refused_changes(const std::vector<ConfigChange>& changes,
                                                        const RunConfig& after);

// Throws bad_config naming each refused key, its old and new value and the flag that allows it.
void require_resumable(const std::vector<ConfigChange>& changes, const RunConfig& after);

// "training.steps: 1000 -> 2000", one per line; empty without changes.
[[nodiscard]] std::string to_string(const std::vector<ConfigChange>& changes);

}  // namespace quench
