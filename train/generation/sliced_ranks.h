#pragma once
// Generation by several processes, each with a slice of the weights (tensor parallelism): rank 0 schedules, samples and
// answers, the others follow its passes (engine/pass_script.h).

#include <memory>
#include <string>

#include "core/device/device.h"
#include "distributed/environment.h"
#include "distributed/tensor/group_tensor_exchange.h"

namespace quench {

struct SlicedRanks {
  Device device;                                                   // this rank's
  std::shared_ptr<distributed::ProcessGroup> host;                 // CPU group of all
  std::shared_ptr<const distributed::GroupTensorExchange> slices;  // rank 0: its destructor ends the passes
};

// All ranks of the launch, a slice each, with their part of the CPU's threads unless `threads` are chosen. Collective.
// `device`: as device_of_rank(). Throws unsupported for GPUs of different compute capability.
[[nodiscard]] SlicedRanks join_slices(const std::string& device, const distributed::Environment& place, int threads);

}  // namespace quench
