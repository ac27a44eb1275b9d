#pragma once
// Optional cuDNN, loaded on first use.

#include <cudnn.h>

#include <mutex>
#include <string>

#include "core/device/device.h"

namespace quench::cuda {

// Empty if available, else the reason. Loads $QUENCH_CUDNN_LIBRARY, else libcudnn of the compiled major version from
// nvidia-* wheels, the loader's path or the CUDA toolkit.
[[nodiscard]] const std::string& cudnn_missing();
// Empty if cuDNN can compile kernels, or is missing itself; else why not.
[[nodiscard]] const std::string& nvrtc_missing();

// Exclusive use of a device's handle, bound to a stream; only enqueues under the lock.
class CudnnSession {
 public:
  explicit CudnnSession(Stream stream);
  [[nodiscard]] cudnnHandle_t handle() const noexcept { return handle_; }

 private:
  std::unique_lock<std::mutex> lock_;
  cudnnHandle_t handle_;
};

}  // namespace quench::cuda
