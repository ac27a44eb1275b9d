// One warp per operand.

#include "core/cuda/common/launch.h"
#include "core/number/float8.h"
#include "core/ops/quantize/delayed_scaling.h"

namespace quench::cuda {
namespace {

constexpr int kWarp = 32, kThreads = 256;

__global__ __launch_bounds__(kThreads) void delayed_scaling_kernel(float* recorded, float* history,
                                                                   const float* largest, float* scale, int operands,
                                                                   int steps, int margin) {
  const int operand = static_cast<int>((blockIdx.x * kThreads + threadIdx.x) / kWarp);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (operand >= operands) return;  // by whole warps
  history += static_cast<std::int64_t>(operand) * steps;
  const float newest = recorded[operand];
  const bool moves = newest > 0.0f && newest < __int_as_float(0x7F800000);
  float most = 0.0f;
  // From the last chunk: a chunk reads columns that later iterations write.
  for (int first = (steps - 1) / kWarp * kWarp; first >= 0; first -= kWarp) {
    const int column = first + lane, from = moves ? column - 1 : column;
    const float value = column >= steps ? 0.0f : from < 0 ? newest : history[from];
    __syncwarp();
    if (moves && column < steps) history[column] = value;
    __syncwarp();
    most = fmaxf(most, value);
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, offset));
  if (lane != 0) return;
  recorded[operand] = 0.0f;
  scale[operand] = most > 0.0f ? ldexpf(float8_scale(most, largest[operand], false), -margin) : 1.0f;
}

void delayed_scaling(const DelayedScalingArgs& args) {
  const OpLaunch launch("delayed_scaling", {&args.recorded, &args.history, &args.largest, &args.scale});
  const auto operands = static_cast<int>(args.recorded.numel());
  constexpr int kWarps = kThreads / kWarp;
  launch(delayed_scaling_kernel, dim3(static_cast<unsigned>((operands + kWarps - 1) / kWarps)), kThreads, 0,
         args.recorded.data<float>(), args.history.data<float>(), args.largest.data<float>(), args.scale.data<float>(),
         operands, static_cast<int>(args.history.size(1)), args.margin);
}

QUENCH_CUDA_KERNEL(delayed_scaling_slot, delayed_scaling);

}  // namespace
}  // namespace quench::cuda
