#pragma once
// What changed between the config of a checkpoint and the config of the run that resumes from it, and whether it may.

#include <string>
#include <vector>

#include "train/config/run_config.h"

namespace quench {

enum class ResumePolicy {
  free,     // may change: learning rate, steps, logging, checkpoint interval, ...
  guarded,  // changes what the remaining steps compute; must be named in checkpoint.allow_changes
  fixed,    // the stored state does not fit any more: never
};

struct ConfigChange {
  std::string key;
  std::string before;  // JSON text; "(unset)" where the key is absent
  std::string after;
  ResumePolicy policy = ResumePolicy::free;
};

// Differences key by key in table order. The architecture is compared by the fields of the models' config.json, so that
// a preset equals the same model given inline or as a folder; where a model folder is not readable, only its path is
// compared, and the loader's shape checks decide. `before_model`, if given, is what the model's config held at the time
// of `before`: what a folder or preset of that name holds now may be another.
[[nodiscard]] std::vector<ConfigChange> config_diff(const RunConfig& before, const RunConfig& after,
                                                    const Json* before_model = nullptr);

// The changes that forbid resuming: fixed ones, and guarded ones that after.checkpoint.allow_changes does not name.
[[nodiscard]] std::vector<ConfigChange> refused_changes(const std::vector<ConfigChange>& changes,
                                                        const RunConfig& after);

// Throws Error(bad_config) naming each refused key, its old and new value and the flag that allows it.
void require_resumable(const std::vector<ConfigChange>& changes, const RunConfig& after);

// "training.steps: 1000 -> 2000", one change a line; empty when there is none.
[[nodiscard]] std::string to_string(const std::vector<ConfigChange>& changes);

}  // namespace quench
