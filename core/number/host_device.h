#pragma once
// One definition of number formats for host and CUDA device code, bit-identical.

// __host__ __device__ under nvcc, else empty.
#if defined(__CUDACC__)
#define QUENCH_HOST_DEVICE __host__ __device__
#else
#define QUENCH_HOST_DEVICE
#endif

namespace quench {

// std::bit_cast for device code without -expt-relaxed-constexpr.
template <class To, class From>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr To bit_cast(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

}  // namespace quench
