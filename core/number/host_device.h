#pragma once
// Number formats, bit-identical on host and CUDA device.

#if defined(__CUDACC__)
#define QUENCH_HOST_DEVICE __host__ __device__
#else
#define QUENCH_HOST_DEVICE
#endif

namespace quench {

// Usable in device code without -expt-relaxed-constexpr.
template <class To, class From>
[[nodiscard]] QUENCH_HOST_DEVICE constexpr To bit_cast(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

}  // namespace quench
