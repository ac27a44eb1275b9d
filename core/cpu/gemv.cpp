#include "core/cpu/gemv.h"

#include "core/cpu/parallel.h"
#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Limit of rows in flight.
constexpr int kMaxStreams = 4;

// out[stream][row] = row of B . row of A.
template <int kRows, int kCount, class T>
void dot_products(const float* a, std::int64_t a_stride, const T* b, std::int64_t b_stride, std::int64_t depth,
                  float (&out)[kMaxStreams][kGemvRows]) {
  // Fewer accumulators stall.
  constexpr int kChains = kRows * kCount >= 4 ? 1 : 4 / (kRows * kCount);
  F32 sums[kCount][kRows][kChains] = {};
  std::int64_t k = 0;
  for (; k + kChains * kLanes <= depth; k += kChains * kLanes)
    for (int chain = 0; chain < kChains; ++chain)
      for (int stream = 0; stream < kCount; ++stream) {
        const F32 weight = load(b + stream * b_stride + k + chain * kLanes, FullVector{});
        for (int row = 0; row < kRows; ++row)
          sums[stream][row][chain] =
              fma(weight, load(a + row * a_stride + k + chain * kLanes, FullVector{}), sums[stream][row][chain]);
      }
  for_vectors(depth - k, [&](std::int64_t i, auto count) {
    for (int stream = 0; stream < kCount; ++stream)
      for (int row = 0; row < kRows; ++row)
        sums[stream][row][0] = fma(load(b + stream * b_stride + k + i, count), load(a + row * a_stride + k + i, count),
                                   sums[stream][row][0]);
  });
  for (int stream = 0; stream < kCount; ++stream)
    for (int row = 0; row < kRows; ++row) {
      F32 sum = sums[stream][row][0];
      for (int chain = 1; chain < kChains; ++chain) sum += sums[stream][row][chain];
      out[stream][row] = reduce_add(sum);
    }
}

template <int kRows, class T, class C>
void multiply(const GemmArgs& args) {
  const std::int64_t n = args.b.size(0), depth = args.b.size(1), b_stride = args.b.stride(0);
  const T* b = args.b.data<T>();
  C* c = args.c.data<C>();
  const std::int64_t c_stride = args.c.stride(0);
  const T* bias = args.bias.defined() ? args.bias.data<T>() : nullptr;

  // The inner loop converts B only.
  const MemoryScope scope(MemoryCategory::workspace);
  Tensor wide;
  const float* a = nullptr;
  std::int64_t a_stride = args.a.stride(0);
  if constexpr (std::is_same_v<T, float>) {
    a = args.a.data<float>();
  } else {
    wide = Tensor::empty({kRows, depth}, DType::f32);
    for (int row = 0; row < kRows; ++row)
      for_vectors(depth, [&](std::int64_t i, auto count) {
        store(wide.data<float>() + row * depth + i, load(args.a.data<T>() + row * a_stride + i, count), count);
      });
    a = wide.data<float>();
    a_stride = depth;
  }

  const auto write = [&](std::int64_t column, const float(&dots)[kGemvRows]) {
    for (int row = 0; row < kRows; ++row) {
      C& target = c[row * c_stride + column];
      float value = args.alpha * dots[row];
      if (args.beta != 0.0f) value += args.beta * static_cast<float>(target);
      if (bias != nullptr) value += static_cast<float>(bias[column]);
      target = C(value);
    }
  };
  // One row streams B sequentially; if A exceeds L1 or has several rows, its vectors are reused for several rows of B.
  const auto walk = [&]<int kCount>() {
    const std::int64_t groups = (n + kCount - 1) / kCount;
    parallel_ranges(groups, n * depth, [&](std::int64_t begin, std::int64_t end) {
      float dots[kMaxStreams][kGemvRows];
      for (std::int64_t column = begin * kCount; column < std::min(end * kCount, n); column += kCount) {
        if (column + kCount <= n) {
          dot_products<kRows, kCount>(a, a_stride, b + column * b_stride, b_stride, depth, dots);
          for (int i = 0; i < kCount; ++i) write(column + i, dots[i]);
        } else {
          for (; column < n; ++column) {
            dot_products<kRows, 1>(a, a_stride, b + column * b_stride, b_stride, depth, dots);
            write(column, dots[0]);
          }
        }
      }
    });
  };
  if (kRows * depth <= 4096)
    walk.template operator()<1>();
  else
    walk.template operator()<kMaxStreams>();
}

void gemv_kernel(const GemmArgs& args) {
  dispatch<float, bfloat16>(args.b.dtype(), "gemm", [&]<class T>() {
    dispatch<float, bfloat16>(args.c.dtype(), "gemm", [&]<class C>() {
      switch (args.c.size(0)) {
        case 1: return multiply<1, T, C>(args);
        case 2: return multiply<2, T, C>(args);
        case 3: return multiply<3, T, C>(args);
        default: return multiply<4, T, C>(args);
      }
    });
  });
}

QUENCH_CPU_KERNEL(gemv_slot, gemv_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
