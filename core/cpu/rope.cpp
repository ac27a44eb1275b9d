#include "core/ops/rope.h"

#include <cmath>

#include "core/cpu/parallel.h"
#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Interleaved pairs.
template <class T>
void rotate_neighbours(const RopeArgs& args) {
  const std::int64_t n = args.x.size(0), heads = args.x.size(1), half = args.x.size(2) / 2;
  const std::int64_t row_stride = args.x.stride(0), head_stride = args.x.stride(1);
  const float sign = args.inverse ? -1.0f : 1.0f;
  parallel_ranges(n, args.x.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* c = args.cos.data<float>() + args.positions.data<std::int32_t>()[row] * half;
      const float* s = args.sin.data<float>() + args.positions.data<std::int32_t>()[row] * half;
      for (std::int64_t head = 0; head < heads; ++head) {
        T* x = args.x.data<T>() + row * row_stride + head * head_stride;
        for (std::int64_t i = 0; i < half; ++i) {
          const auto a = static_cast<float>(x[2 * i]), b = static_cast<float>(x[2 * i + 1]);
          const float sine = s[i] * sign;
          x[2 * i] = T(std::fma(a, c[i], -(b * sine)));
          x[2 * i + 1] = T(std::fma(b, c[i], a * sine));
        }
      }
    }
  });
}

template <class T>
void rotate(const RopeArgs& args) {
  const std::int64_t n = args.x.size(0), heads = args.x.size(1), half = args.x.size(2) / 2;
  const std::int64_t row_stride = args.x.stride(0), head_stride = args.x.stride(1);
  T* x = args.x.data<T>();
  const float* cos = args.cos.data<float>();
  const float* sin = args.sin.data<float>();
  const std::int32_t* positions = args.positions.data<std::int32_t>();
  const float sign = args.inverse ? -1.0f : 1.0f;
  parallel_ranges(n, args.x.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* c = cos + positions[row] * half;
      const float* s = sin + positions[row] * half;
      for (std::int64_t head = 0; head < heads; ++head) {
        T* first = x + row * row_stride + head * head_stride;
        T* second = first + half;
        for_vectors(half, [&](std::int64_t i, auto count) {
          const F32 a = load(first + i, count), b = load(second + i, count);
          const F32 cosine = load(c + i, count), sine = load(s + i, count) * sign;
          store(first + i, fma(a, cosine, -(b * sine)), count);
          store(second + i, fma(b, cosine, a * sine), count);
        });
      }
    }
  });
}

void rope_kernel(const RopeArgs& args) {
  dispatch<float, bfloat16>(args.x.dtype(), "rope",
                            [&]<class T>() { args.interleaved ? rotate_neighbours<T>(args) : rotate<T>(args); });
}

QUENCH_CPU_KERNEL(rope_slot, rope_kernel);
QUENCH_CPU_KERNEL(rope_codes_slot, rope_codes_of_copy);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
