#include "distributed/gpu_links.h"

namespace quench::distributed {
namespace {

constinit GpuLinkCheck registered_check = nullptr;

}  // namespace

GpuLinks check_gpu_links(int gpus) {
  if (registered_check != nullptr) return registered_check(gpus);
  return {.peer_access = {}, .nccl_problem = "this build has no NCCL"};
}

bool register_gpu_link_check(GpuLinkCheck check) noexcept {
  registered_check = check;
  return true;
}

}  // namespace quench::distributed
