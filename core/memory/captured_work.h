#pragma once
// Ops that are captured once and launched many times with one call each (CUDA graphs). Worth it for many short ops,
// which take the host longer to queue than the device to run.

#include <functional>
#include <memory>

#include "core/memory/storage.h"

namespace quench {

class CapturedWork {
 public:
  // Calls `work`; its ops on `device` are captured, not run. Every launch uses the same addresses: those of tensors
  // that outlive this object, and those of tensors that end within `work`, whose memory is kept. Values that the host
  // learns later must be read from the device; `work` may not wait for the device or copy from the host. Null where the
  // device has no graphs. Throws what `work` throws, and failed where something cannot be captured.
  [[nodiscard]] static std::unique_ptr<CapturedWork> capture(Device device, const std::function<void()>& work);
  // Waits for launches under way.
  ~CapturedWork();
  CapturedWork(const CapturedWork&) = delete;
  CapturedWork& operator=(const CapturedWork&) = delete;

  // Queues it on the current stream.
  void launch() const;

 private:
  CapturedWork() = default;
  KeptMemory kept_;
  Graph graph_;
};

}  // namespace quench
