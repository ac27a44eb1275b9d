#pragma once
// Check of the links between the GPUs of a machine, for `quench doctor`.

#include <string>
#include <vector>

namespace quench::distributed {

struct GpuLinks {
  // peer_access[i][j]: device i can map memory of device j; false for i == j.
  std::vector<std::vector<bool>> peer_access;
  // Problem of an all-reduce among all GPUs in one process; empty: results are right.
  std::string nccl_problem;
};

// Within about 30 s; never hangs. Errors are reported in nccl_problem. A build without NCCL says so.
[[nodiscard]] GpuLinks check_gpu_links(int gpus);

using GpuLinkCheck = GpuLinks (*)(int gpus);
// During static initialization, by the NCCL engine.
bool register_gpu_link_check(GpuLinkCheck check) noexcept;

}  // namespace quench::distributed
