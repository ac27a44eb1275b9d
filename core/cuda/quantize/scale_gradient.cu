
#include "core/cuda/quantize/quantize_common.cuh"
#include "core/ops/quantize/scale_gradient.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// kLanes adjacent lanes per group, every kLanes-th vector each.
template <class T, class G, int kLanes>
__global__ __launch_bounds__(kThreads) void scale_gradient_kernel(const T* w, const G* dvalue, const float* scales,
                                                                  float* out, std::int64_t groups,
                                                                  std::int64_t elements, bool wide, int bits,
                                                                  IntMapping mapping, float factor) {
  const std::int64_t group = std::int64_t{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float sum = 0.0f;
  if (group < groups) {
    const float inverse = 1.0f / scales[group];
    const std::int64_t first = group * elements;
#pragma unroll 2
    for (std::int64_t i = std::int64_t{lane} * kPiece; i < elements; i += kLanes * kPiece) {
      const auto here = static_cast<int>(min(std::int64_t{kPiece}, elements - i));
      const Piece value = load_piece(w + first + i, wide, here), gradient = load_piece(dvalue + first + i, wide, here);
#pragma unroll
      for (int k = 0; k < kPiece; ++k) {
        const float slope = scale_slope(value[k] * inverse, bits, mapping, [](float x) { return rintf(x); });
        if (k < here) sum += gradient[k] * slope;
      }
    }
  }
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
  if (lane == 0 && group < groups) out[group] = sum * factor;
}

template <class T, class G>
void launch_scale_gradient(const OpLaunch& launch, const ScaleGradientArgs& args) {
  const std::int64_t groups = args.scales.numel(), elements = args.w.numel() / groups;
  const T* w = args.w.data<T>();
  const G* dvalue = args.dvalue.data<G>();
  const bool wide = elements % kPiece == 0 && aligned(w) && aligned(dvalue);
  const auto run = [&]<int kLanes>() {
    constexpr int kGroups = kThreads / kLanes;
    launch(scale_gradient_kernel<T, G, kLanes>, static_cast<unsigned>((groups + kGroups - 1) / kGroups), kThreads, 0, w,
           dvalue, args.scales.data<float>(), args.out.data<float>(), groups, elements, wide, args.options.bits,
           args.options.mapping, args.factor);
  };
  if (elements <= 4 * kPiece) return run.template operator()<4>();
  if (elements <= 8 * kPiece) return run.template operator()<8>();
  if (elements <= 16 * kPiece) return run.template operator()<16>();
  run.template operator()<32>();
}

void scale_gradient_cuda(const ScaleGradientArgs& args) {
  const OpLaunch launch("scale_gradient", {&args.w, &args.dvalue, &args.scales, &args.out});
  dispatch<float, bfloat16>(args.w.dtype(), "scale_gradient", [&]<class T>() {
    dispatch<float, bfloat16>(args.dvalue.dtype(), "scale_gradient",
                              [&]<class G>() { launch_scale_gradient<T, G>(launch, args); });
  });
}

QUENCH_CUDA_KERNEL(scale_gradient_slot, scale_gradient_cuda);

}  // namespace
}  // namespace quench::cuda
