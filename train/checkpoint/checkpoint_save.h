#pragma once
// One atomic save of a checkpoint; CheckpointWriter adds threads, policies and retention.

#include <cstdint>
#include <filesystem>
#include <span>

#include "distributed/process_group.h"
#include "train/checkpoint/checkpoint_state.h"

namespace quench {

struct SavedCheckpoint {
  std::filesystem::path path;
  std::uint64_t bytes = 0;  // data files and manifest; known to the first process
};

// Writes <folder>/step-<state.step>, from one process or, where `peers` is not null, from all of that CPU group
// together: each gives its parts of the tensors and writes one file, and an error of one is an error of all. The first
// one writes the manifest, of its own `state`. Afterwards the folder holds either the whole new checkpoint or what it
// held before, at every moment and after any failure or kill; a temporary folder that could not be removed is left to
// remove_leftovers. Checkpoints of later steps belong to an abandoned line of training and are marked superseded.
// Throws invalid_argument (bad tensors), no_space (naming bytes needed and free), io (after one retry).
SavedCheckpoint save_checkpoint(const std::filesystem::path& folder, const CheckpointState& state,
                                std::span<const CheckpointTensor> tensors, distributed::ProcessGroup* peers = nullptr);

// Proves that files can be written, synced and renamed in the folder, which is created if need be. Throws bad_config,
// io or no_space naming the folder and the step that failed.
void probe_checkpoint_folder(const std::filesystem::path& folder);

}  // namespace quench
