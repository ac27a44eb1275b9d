#pragma once
// The counters of a run that a checkpoint restores.

#include <cstdint>
#include <string>

#include "train/checkpoint/checkpoint_state.h"
#include "train/config/run_config.h"
#include "train/setup/run_identity.h"
#include "train/step/loss_guard.h"

namespace quench {

struct RunProgress {
  std::int64_t step = 0;         // optimizer steps done, skipped ones included
  std::int64_t tokens_seen = 0;  // valid target tokens consumed
  std::int64_t samples = 0;      // position in the sample order
  double loss = 0;               // of the last step
};

// The state that a checkpoint of this moment stores besides tensors.
[[nodiscard]] CheckpointState checkpoint_state(const RunConfig& config, const RunIdentity& identity,
                                               const RunProgress& progress, const LossGuard& guard);

// The inverse; `guard` gets its windows back. Throws bad_config when the stored config, or the content of what it
// points to, forbids resuming with `config`, naming key, old and new value.
[[nodiscard]] RunProgress restore_progress(const CheckpointState& state, const RunConfig& config,
                                           const RunIdentity& identity, LossGuard& guard);

// What a run says that is started again when all its steps are done: that, and how to train on.
[[nodiscard]] std::string finished_message(const RunConfig& config, const RunProgress& progress, std::int64_t steps);

}  // namespace quench
