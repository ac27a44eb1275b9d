#pragma once
// Asynchronous device-to-host copy; waits on first read.

#include <optional>
#include <utility>

#include "core/tensor/tensor.h"

namespace quench {

class HostCopy {
 public:
  // Contiguous source, may be released at once. Queued on the current stream.
  explicit HostCopy(const Tensor& source);
  ~HostCopy();
  HostCopy(HostCopy&& other) noexcept { swap(other); }
  HostCopy& operator=(HostCopy&& other) noexcept {
    swap(other);
    return *this;
  }

  // CPU tensor. Waits for the copy only.
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
