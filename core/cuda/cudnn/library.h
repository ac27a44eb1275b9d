#pragma once
// cuDNN as a library that may be missing: opened when first needed, so that the program also starts without it.

#include <cudnn.h>

#include <mutex>
#include <string>

#include "core/device/device.h"

namespace quench::cuda {

// Empty if cuDNN is there, else why it is not. Opens the library on the first call: QUENCH_CUDNN_LIBRARY of the
// environment, else libcudnn of the compiled-for major version where the loader finds it or in the CUDA toolkit.
[[nodiscard]] const std::string& cudnn_missing();

// The one handle of a device, bound to a stream for as long as this is alive. Handles and plans are not safe to share
// between threads, hence the lock; work is only enqueued under it.
class CudnnSession {
 public:
  explicit CudnnSession(Stream stream);
  [[nodiscard]] cudnnHandle_t handle() const noexcept { return handle_; }

 private:
  std::unique_lock<std::mutex> lock_;
  cudnnHandle_t handle_;
};

}  // namespace quench::cuda
