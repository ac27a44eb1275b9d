#pragma once
// How many threads the CPU kernels of this process use. A build without OpenMP (the fuzz targets') has one.

#ifdef _OPENMP
#include <omp.h>
#endif

namespace quench {

// More than any machine has; OpenMP ends the process where it cannot start what it is asked for.
inline constexpr int kMaxThreads = 4096;

[[nodiscard]] inline int thread_count() noexcept {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

// 0 or less keeps what it is.
inline void set_thread_count([[maybe_unused]] int threads) noexcept {
#ifdef _OPENMP
  if (threads > 0) omp_set_num_threads(threads);
#endif
}

}  // namespace quench
