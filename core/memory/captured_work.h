#pragma once
// Ops that are queued once and run again and again with one call (CUDA graphs): where they are many and short, the host
// takes longer to queue them than the device to run them.

#include <functional>
#include <memory>

#include "core/memory/storage.h"

namespace quench {

class CapturedWork {
 public:
  // Calls `work`; its ops on `device` are captured, not run. They will use the same addresses at every launch: of
  // tensors that live longer than this, and of those that end within `work`, whose memory is kept. They may not depend
  // on what the host knows only later, and nothing in `work` may wait for the device or copy from the host. Null where
  // the device has no graphs. Throws what `work` throws, and failed where something cannot be captured.
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
