#include "core/cuda/common/cuda_error.h"

namespace quench::cuda {
namespace {

// Sticky kernel faults surface at a later call.
std::string_view hint(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return "; work queued earlier may be the cause: with CUDA_LAUNCH_BLOCKING=1 in the environment its op is named";
    case cudaErrorECCUncorrectable: return "; the GPU's memory is faulty";
    default: return "";
  }
}

}  // namespace

void check(cudaError_t status, std::string_view what, Stream stream) {
  if (status == cudaSuccess) return;
  const ErrorCode code = status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::failed;
  QUENCH_FAIL(code, "{} on {}, stream {}: {} ({}){}", what, stream.device.to_string(), stream.handle,
              cudaGetErrorString(status), cudaGetErrorName(status), hint(status));
}

DeviceGuard::DeviceGuard(Device device) {
  int current = 0;
  check(cudaGetDevice(&current), "cudaGetDevice", device);
  if (current == device.index) return;
  check(cudaSetDevice(device.index), "cudaSetDevice", device);
  previous_ = current;
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

}  // namespace quench::cuda
