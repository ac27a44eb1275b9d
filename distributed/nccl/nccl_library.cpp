#include "distributed/nccl/nccl_library.h"

#include <fmt/core.h>

#include "core/device/library_versions.h"
#include "core/device/shared_library.h"
#include "core/system/check.h"

namespace quench::distributed {
namespace {

NcclLibrary load() {
  const SharedLibrary library({.product = "NCCL",
                               .file = "libnccl.so",
                               .major = NCCL_MAJOR,
                               .package = fmt::format("NCCL {}", NCCL_MAJOR),
                               .global = true});
  NcclLibrary f{};
  library.bind(f.get_version, "ncclGetVersion");
  library.bind(f.get_unique_id, "ncclGetUniqueId");
  library.bind(f.comm_init_rank_config, "ncclCommInitRankConfig");
  library.bind(f.comm_abort, "ncclCommAbort");
  library.bind(f.comm_finalize, "ncclCommFinalize");
  library.bind(f.comm_destroy, "ncclCommDestroy");
  library.bind(f.comm_get_async_error, "ncclCommGetAsyncError");
  library.bind(f.all_reduce, "ncclAllReduce");
  library.bind(f.all_gather, "ncclAllGather");
  library.bind(f.reduce_scatter, "ncclReduceScatter");
  library.bind(f.broadcast, "ncclBroadcast");
  library.bind(f.send, "ncclSend");
  library.bind(f.recv, "ncclRecv");
  library.bind(f.group_start, "ncclGroupStart");
  library.bind(f.group_end, "ncclGroupEnd");
  library.bind(f.get_error_string, "ncclGetErrorString");
  library.bind(f.get_last_error, "ncclGetLastError");
  return f;
}

std::string missing() {
  try {
    (void)nccl();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// 22803 -> "2.28.3".
std::string version() {
  int number = 0;
  if (!missing().empty() || nccl().get_version(&number) != ncclSuccess) return "(not found)";
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

[[maybe_unused]] const bool nccl_registered =
    register_library("NCCL", version, DeviceType::cuda, {"libnccl.so", missing});

}  // namespace

const NcclLibrary& nccl() {
  static const NcclLibrary library = load();
  return library;
}

}  // namespace quench::distributed
