#pragma once
// A named stretch of work in a profiler's timeline (NVTX ranges on NVIDIA GPUs).

#include "core/device/device.h"

namespace quench {

class TraceRange {
 public:
  // `name` begins a range that ends with this object; ranges nest. Free where the device has no profiler.
  TraceRange(Device device, std::string_view name) : backend_(device.is_cpu() ? nullptr : &backend(device.type)) {
    if (backend_ != nullptr) backend_->range_begin(name);
  }
  ~TraceRange() {
    if (backend_ != nullptr) backend_->range_end();
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  Backend* backend_;
};

}  // namespace quench
