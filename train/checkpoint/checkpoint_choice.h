#pragma once
// One checkpoint for all ranks, chosen by rank 0: ranks may see different listings of a network folder.

#include <filesystem>
#include <functional>
#include <span>

#include "distributed/process_group.h"
#include "train/checkpoint/checkpoint_reader.h"

namespace quench {

using LoadCheckpoint = std::function<void(CheckpointReader&)>;

// Path of the checkpoint that was loaded; empty: none. The same on all ranks of the CPU group `peers`.
//
// `choose` runs on rank 0. It passes open checkpoints to its argument until one loads, and returns that one's path. Its
// argument opens the path on the other ranks, requires the same save UUID and runs `load` on all ranks; `load` must
// throw on all or none. An error of `choose` is raised on all ranks. Code `failed`: a rank does not find the
// checkpoint, or another save under its path.
std::filesystem::path load_chosen(distributed::ProcessGroup& peers, Verify verify, const LoadCheckpoint& load,
                                  const std::function<std::filesystem::path(const LoadCheckpoint&)>& choose);

// Path of the first of `paths` that loads; empty: none. Skips absent ones, and damaged ones (Error corrupt) with an
// error in the log; `load` must overwrite all restored state. Other errors propagate.
std::filesystem::path load_first(std::span<const std::filesystem::path> paths, const LoadCheckpoint& load,
                                 Verify verify = Verify::hashes);

}  // namespace quench
