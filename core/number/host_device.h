#pragma once
// Lets one definition of a number format serve host code and CUDA device code, so that both produce the same bits.

// Goes in front of functions that device code calls: __host__ __device__ under nvcc, nothing elsewhere.
#if defined(__CUDACC__)
#define QUENCH_HOST_DEVICE __host__ __device__
#else
#define QUENCH_HOST_DEVICE
#endif

namespace quench {

// std::bit_cast, callable in device code without -expt-relaxed-constexpr.
template <class To, class From>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr To bit_cast(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

}  // namespace quench
