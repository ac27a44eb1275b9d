#pragma once
// CUDA graph: captured ops, launched with one call; pays off for short kernels.

#include <functional>
#include <memory>

#include "core/memory/storage.h"

namespace quench {

class DeviceGraph {
 public:
  // Captures the ops of `work` on `device` without running them. Launches reuse addresses: outside tensors must outlive
  // this object; memory freed within `work` is retained. `work` may not synchronize or copy from the host. Null without
  // graph support. Throws what `work` throws, failed for an op that cannot be captured.
  [[nodiscard]] static std::unique_ptr<DeviceGraph> capture(Device device, const std::function<void()>& work);
  // Waits for launches.
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  void launch() const;

 private:
  DeviceGraph() = default;
  GraphMemory kept_;
  Graph graph_;
};

}  // namespace quench
