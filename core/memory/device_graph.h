#pragma once
// CUDA graph: ops captured once and launched many times with one call. Pays off for sequences of short kernels, where
// launch latency dominates.

#include <functional>
#include <memory>

#include "core/memory/storage.h"

namespace quench {

class DeviceGraph {
 public:
  // Calls `work`, capturing its ops on `device` without running them. Launches reuse the addresses: tensors from
  // outside must outlive this object; memory of tensors freed within `work` is retained. `work` may not synchronise or
  // copy from the host. Null if the device has no graphs. Throws what `work` throws, and failed for an op that cannot
  // be captured.
  [[nodiscard]] static std::unique_ptr<DeviceGraph> capture(Device device, const std::function<void()>& work);
  // Waits for launches in flight.
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  // Queues the graph on the current stream.
  void launch() const;

 private:
  DeviceGraph() = default;
  GraphMemory kept_;
  Graph graph_;
};

}  // namespace quench
