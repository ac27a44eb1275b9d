#pragma once
// What makes groups for a type of device: Gloo for the CPU, NCCL for CUDA.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "distributed/process_group.h"
#include "distributed/store/store.h"

namespace quench::distributed {

struct GroupOptions {
  std::chrono::milliseconds join_timeout{600'000};  // until all ranks of a group are there
  std::chrono::milliseconds timeout{300'000};       // of one operation
  bool check_collectives = true;             // Gloo: ranks compare what they were asked for before they move anything
  std::shared_ptr<const Watchdog> watchdog;  // of the world; null: no watchdog during the rendezvous of groups
};

// A group's name is the same on all its ranks and no other group's.
struct GroupPlace {
  std::string name;
  int rank = 0;
  int size = 1;
};

class GroupEngine {
 public:
  virtual ~GroupEngine() = default;
  // Collective over the group's ranks, which find each other under `prefix` in the store. Throws failed naming the
  // group when they do not all come in time.
  [[nodiscard]] virtual std::unique_ptr<ProcessGroup> make_group(const GroupPlace& place, Store& store,
                                                                 const std::string& prefix) = 0;
};

using EngineFactory = std::function<std::unique_ptr<GroupEngine>(Device, const Store&, const GroupOptions&)>;
// Called by an engine's object file during static initialisation.
bool register_engine(DeviceType type, EngineFactory factory);
// Throws unsupported where this build has none for the device.
[[nodiscard]] std::unique_ptr<GroupEngine> make_engine(Device device, const Store& store, const GroupOptions& options);

}  // namespace quench::distributed
