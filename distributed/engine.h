#pragma once
// Factories of process groups by device type: Gloo for CPU, NCCL for CUDA.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "distributed/process_group.h"
#include "distributed/store/store.h"

namespace quench::distributed {

struct GroupOptions {
  std::chrono::milliseconds join_timeout{600'000};  // for all ranks to join
  std::chrono::milliseconds timeout{300'000};       // per operation
  bool check_collectives = true;  // Gloo: ranks compare operation, dtype and sizes before each transfer
  // The watchdog ends a process that is still alive 30 s after its groups were aborted (distributed/watchdog.h).
  bool end_hanging_process = false;
  bool several_nodes = false;                // Gloo: peers need an address that other nodes reach
  std::shared_ptr<const Watchdog> watchdog;  // null: group creation is not watched
};

// The name is equal on all ranks of the group and unique.
struct GroupPlace {
  std::string name;
  int rank = 0;
  int size = 1;
};

class GroupEngine {
 public:
  virtual ~GroupEngine() = default;
  // Collective over the group's ranks; rendezvous under `prefix` in the store. Throws failed on a join timeout.
  [[nodiscard]] virtual std::unique_ptr<ProcessGroup> make_group(const GroupPlace& place, Store& store,
                                                                 const std::string& prefix) = 0;
};

using EngineFactory = std::function<std::unique_ptr<GroupEngine>(Device, const Store&, const GroupOptions&)>;
// During static initialisation.
bool register_engine(DeviceType type, EngineFactory factory);
// Throws unsupported if this build has no engine for the device.
[[nodiscard]] std::unique_ptr<GroupEngine> make_engine(Device device, const Store& store, const GroupOptions& options);

}  // namespace quench::distributed
