#pragma once
// Progress of a run, and its state in checkpoints.

#include <cstdint>
#include <string>

#include "train/checkpoint/checkpoint_state.h"
#include "train/config/run_config.h"
#include "train/record/run_identity.h"
#include "train/step/loss_guard.h"

namespace quench {

struct RunProgress {
  std::int64_t step = 0;         // completed, with skipped ones
  std::int64_t tokens_seen = 0;  // valid targets
  std::int64_t samples = 0;      // in the sample order
  double loss = 0;
};

// Non-tensor state.
[[nodiscard]] CheckpointState checkpoint_state(const RunConfig& config, const RunIdentity& identity,
                                               const RunProgress& progress, const LossGuard& guard);

// Inverse; restores the windows of `guard`. Throws bad_config naming key, old and new value if the stored config or its
// content forbids resuming with `config`.
[[nodiscard]] RunProgress restore_progress(const CheckpointState& state, const RunConfig& config,
                                           const RunIdentity& identity, LossGuard& guard);

// For the restart of a finished run: how to train further.
[[nodiscard]] std::string finished_message(const RunConfig& config, const RunProgress& progress, std::int64_t steps);

}  // namespace quench
