#pragma once
// A copy of a small device tensor that the host reads later: queued at once, waited for when it is read.

#include <optional>
#include <utility>

#include "core/tensor/tensor.h"

namespace quench {

class HostCopy {
 public:
  // `source` is contiguous. The copy is queued on the device's current stream; the source may be released right after
  // this call.
  explicit HostCopy(const Tensor& source);
  ~HostCopy();
  HostCopy(HostCopy&& other) noexcept { swap(other); }
  HostCopy& operator=(HostCopy&& other) noexcept {
    swap(other);
    return *this;
  }

  // The copy on the CPU: the source's values at the point in the stream where the copy was queued. Waits for the copy,
  // not for work queued after it.
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
