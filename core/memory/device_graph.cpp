#include "core/memory/device_graph.h"

#include <map>
#include <mutex>

namespace quench {
namespace {

// One per device and process: the default stream cannot be captured; freed blocks remember it.
Stream capture_stream(Device device) {
  static std::mutex mutex;
  static auto& streams = *new std::map<int, Stream>;
  const std::lock_guard lock(mutex);
  const auto it = streams.find(device.index);
  return it != streams.end() ? it->second
                             : streams.emplace(device.index, backend(device.type).create_stream(device)).first->second;
}

}  // namespace

std::unique_ptr<DeviceGraph> DeviceGraph::capture(Device device, const std::function<void()>& work) {
  if (device.type != DeviceType::cuda) return nullptr;
  Backend& owner = backend(device.type);
  const Stream stream = capture_stream(device);
  std::unique_ptr<DeviceGraph> captured(new DeviceGraph);
  const StreamGuard on_stream(stream);
  if (!owner.begin_capture(stream)) return nullptr;
  try {
    const GraphMemory::Scope scope(captured->kept_);
    work();
  } catch (...) {
    try {
      owner.destroy_graph(owner.end_capture(stream));
    } catch (const Error&) {  // the first error is reported
    }
    throw;
  }
  captured->graph_ = owner.end_capture(stream);
  return captured;
}

DeviceGraph::~DeviceGraph() {
  if (graph_.handle == nullptr) return;
  Backend& owner = backend(graph_.device.type);
  try {
    owner.synchronize(current_stream(graph_.device));
  } catch (const Error&) {  // sticky errors surface at the next use of the device
  }
  owner.destroy_graph(graph_);
}

void DeviceGraph::launch() const {
  backend(graph_.device.type).launch(graph_, current_stream(graph_.device));
}

}  // namespace quench
