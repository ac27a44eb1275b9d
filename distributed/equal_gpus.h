#pragma once
// Check that all ranks have GPUs of one compute capability.

#include "core/device/gpu_support.h"
#include "distributed/process_group.h"

namespace quench::distributed {

// Over a CPU group. Throws unsupported on every rank if the compute capabilities of the ranks' GPUs differ.
void require_equal_gpus(ProcessGroup& host, const RankGpu& mine);

}  // namespace quench::distributed
