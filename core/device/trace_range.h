#pragma once
// Profiler range (NVTX).

#include "core/device/device.h"

namespace quench {

class TraceRange {
 public:
  // Nestable.
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
