#pragma once
// Checkpoint retention and cleanup.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace quench {

struct RetentionPolicy {
  int keep_latest = 3;                   // newest valid checkpoints; 0: all
  std::vector<std::int64_t> keep_steps;  // exempt: pinned, resumed from, just saved
};

// Deletes valid checkpoints beyond the newest `keep_latest`. Exempt: keep_steps, pinned, superseded and invalid
// checkpoints, those with a file that no save wrote, symbolic links and their targets within the folder. With
// keep_latest = 1 the newest is verified first. Renames to .trash-... before deletion, so that no step-N is partial.
// Failures are logged and retried by the next call.
void apply_retention(const std::filesystem::path& folder, const RetentionPolicy& policy);

// Moves all checkpoints to a new subfolder earlier-1 (or -2, ...) and logs it: a run that did not resume from the
// folder neither replaces nor counts them. Requires the run lock and no save in flight.
void set_aside_checkpoints(const std::filesystem::path& folder);

// Removes temporary and trash folders of earlier processes, by the exact form of their names, except files that no save
// wrote; restores the name of a checkpoint moved by an interrupted
// save. Requires the run lock and no save in flight.
void remove_leftovers(const std::filesystem::path& folder);

}  // namespace quench
