#pragma once
// One atomic checkpoint save. Threads, policies and retention: CheckpointWriter.

#include <cstdint>
#include <filesystem>
#include <span>

#include "distributed/process_group.h"
#include "train/checkpoint/checkpoint_state.h"

namespace quench {

struct SavedCheckpoint {
  std::filesystem::path path;
  std::uint64_t bytes = 0;  // data files and manifest; set on rank 0
};

// Writes <folder>/step-<state.step>, as one process or collectively over the CPU group `peers`: each rank writes its
// shards to one data file, rank 0 writes the manifest from its `state`, and an error on one rank is raised on all.
// Atomic: the folder holds the complete new checkpoint or its previous content at all times, also after a kill; a
// temporary folder that cannot be removed is left to remove_leftovers. Checkpoints of later steps are marked
// superseded. Throws invalid_argument (bad tensors), no_space (bytes needed and free), io (after one retry).
SavedCheckpoint save_checkpoint(const std::filesystem::path& folder, const CheckpointState& state,
                                std::span<const CheckpointTensor> tensors, distributed::ProcessGroup* peers = nullptr);

// Tests that files can be written, synced and renamed in the folder, which is created if absent. Throws bad_config, io
// or no_space naming the folder and the failed operation.
void probe_checkpoint_folder(const std::filesystem::path& folder);

}  // namespace quench
