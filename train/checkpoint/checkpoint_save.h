#pragma once
// One atomic save, without threads, policies and retention (CheckpointWriter).

#include <cstdint>
#include <filesystem>
#include <span>

#include "distributed/process_group.h"
#include "train/checkpoint/checkpoint_state.h"
#include "train/checkpoint/run_line.h"

namespace quench {

struct SavedCheckpoint {
  std::filesystem::path path;
  std::uint64_t bytes = 0;  // data files and manifest; on rank 0
};

// Writes <folder>/step-<state.step>, as one process or collectively over the CPU group `peers`: each rank writes its
// shards to one data file, rank 0 the manifest from its `state`; an error on one rank is raised on all. Atomic, also
// after a kill; a temporary folder that cannot be removed is left to remove_leftovers. Rank 0 marks checkpoints outside
// `line` superseded, keeps one of the same step under another name, and adds the step to `line`. Null: later steps are
// marked, the same step is replaced. Throws invalid_argument (bad tensors), no_space (bytes needed and free), io (after
// one retry).
SavedCheckpoint save_checkpoint(const std::filesystem::path& folder, const CheckpointState& state,
                                std::span<const CheckpointTensor> tensors, distributed::ProcessGroup* peers = nullptr,
                                RunLine* line = nullptr);

// Creates the folder if absent; tests write, sync and rename. Throws bad_config, io or no_space naming folder and
// operation.
void probe_checkpoint_folder(const std::filesystem::path& folder);

}  // namespace quench
