// CUDA kernels of the op, on the calling thread's stream.
#include "squared_relu.h"

using namespace quench;

namespace {

__global__ void forward_kernel(const float* x, float* y, std::int64_t n) {
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = x[i] > 0 ? x[i] * x[i] : 0;
}

__global__ void backward_kernel(const float* x, const float* dy, float* dx, std::int64_t n) {
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i < n) dx[i] = x[i] > 0 ? dy[i] * (2 * x[i]) : 0;
}

unsigned blocks(std::int64_t n) {
  return static_cast<unsigned>((n + 255) / 256);
}
cudaStream_t stream_of(const Tensor& x) {
  return static_cast<cudaStream_t>(current_stream(x.device()).handle);
}
void check_launch() {
  const cudaError_t error = cudaGetLastError();
  QUENCH_CHECK_AS(ErrorCode::failed, error == cudaSuccess, "squared_relu: {}", cudaGetErrorString(error));
}

void forward_cuda(const SquaredReluArgs& a) {
  forward_kernel<<<blocks(a.x.numel()), 256, 0, stream_of(a.x)>>>(a.x.data<float>(), a.y.data<float>(), a.x.numel());
  check_launch();
}

void backward_cuda(const SquaredReluBackwardArgs& a) {
  backward_kernel<<<blocks(a.x.numel()), 256, 0, stream_of(a.x)>>>(a.x.data<float>(), a.dy.data<float>(),
                                                                   a.dx.data<float>(), a.x.numel());
  check_launch();
}

[[maybe_unused]] const bool kFilled = squared_relu_slot.fill(DeviceType::cuda, forward_cuda) &&
                                      squared_relu_backward_slot.fill(DeviceType::cuda, backward_cuda);

}  // namespace
