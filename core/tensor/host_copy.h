#pragma once
// A copy of a small device tensor that the host reads later: queued at once, waited for when it is read.

#include <optional>
#include <utility>

#include "core/tensor/tensor.h"

namespace quench {

class HostCopy {
 public:
  // `source` is contiguous. The copy runs behind what is queued on the device's current stream; the source may be given
  // up right after.
  explicit HostCopy(const Tensor& source);
  ~HostCopy();
  HostCopy(HostCopy&& other) noexcept { swap(other); }
  HostCopy& operator=(HostCopy&& other) noexcept {
    swap(other);
    return *this;
  }

  // On the CPU, with the values of the source as they were in the order of the stream. Waits for them, for nothing that
  // was queued after.
  [[nodiscard]] const Tensor& get() const;

 private:
  void swap(HostCopy& other) noexcept {
    std::swap(on_host_, other.on_host_);
    std::swap(done_, other.done_);
  }

  Tensor on_host_;
  std::optional<Event> done_;
};

}  // namespace quench
