#pragma once
// Which checkpoints of a run are deleted, and how.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace quench {

struct RetentionPolicy {
  int keep_latest = 3;                   // newest valid checkpoints to keep; 0 keeps all
  std::vector<std::int64_t> keep_steps;  // never deleted: pinned, resumed from, just saved
};

// Deletes valid checkpoints beyond the newest `keep_latest`. Never deletes: keep_steps, pinned or superseded ones,
// invalid ones (a person should look at them), symbolic links and what symbolic links in the folder point to. With
// keep_latest = 1 the newest is read back and verified before the one before it goes. A checkpoint is first renamed to
// .trash-..., so that none is ever half deleted under its name. Failures are logged and retried by the next call.
void apply_retention(const std::filesystem::path& folder, const RetentionPolicy& policy);

// Moves every checkpoint into a new folder earlier-1 (or -2, ...) beside it: a run that starts anew must neither
// replace nor count those of the run before it. Logs where they are. Only for the holder of the run lock, while nothing
// saves.
void set_aside_checkpoints(const std::filesystem::path& folder);

// Removes temporary and trash folders of earlier processes; a checkpoint that an interrupted save had moved away for
// its own gets its name back. Only for the holder of the run lock, while nothing saves.
void remove_leftovers(const std::filesystem::path& folder);

}  // namespace quench
