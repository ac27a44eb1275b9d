#pragma once
// Differences between a checkpoint's config and the resuming run's.

#include <string>
#include <vector>

#include "train/config/run_config.h"

namespace quench {

enum class ResumePolicy {
  free,     // may change: learning rate, steps, logging, ...
  guarded,  // changes remaining steps: only if in checkpoint.allow_changes
  fixed,    // incompatible with the stored state
};

struct ConfigChange {
  std::string key;
  std::string before;  // JSON text; "(unset)" if absent
  std::string after;
  ResumePolicy policy = ResumePolicy::free;
};

// In table order. Architectures are compared by config.json fields: a preset equals the same model inline or in a
// folder; an unreadable model folder is compared by path (weight loading checks shapes). `before_model`: the model's
// config at the time of `before`; preset or folder may have changed.
[[nodiscard]] std::vector<ConfigChange> config_diff(const RunConfig& before, const RunConfig& after,
                                                    const Json* before_model = nullptr);

// `model` (model_config()) without keys that change neither logits nor initial weights: token ids, use_cache, a context
// length from which no RoPE scaling follows, ...
[[nodiscard]] Json without_neutral_keys(const Json& model);

// Fixed changes, and guarded ones not in after.checkpoint.allow_changes.
[[nodiscard]] std::vector<ConfigChange> refused_changes(const std::vector<ConfigChange>& changes,
                                                        const RunConfig& after);

// Throws bad_config naming each refused key, its values and the flag that allows it.
void require_resumable(const std::vector<ConfigChange>& changes, const RunConfig& after);

// "training.steps: 1000 -> 2000", one per line.
[[nodiscard]] std::string to_string(const std::vector<ConfigChange>& changes);

}  // namespace quench
