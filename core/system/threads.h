#pragma once
// CPU kernel threads; one without OpenMP (fuzz targets).

#ifdef _OPENMP
#include <omp.h>
#endif

namespace quench {

// OpenMP aborts if a thread cannot start.
inline constexpr int kMaxThreads = 4096;

[[nodiscard]] inline int thread_count() noexcept {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

[[nodiscard]] inline bool in_parallel() noexcept {
#ifdef _OPENMP
  return omp_in_parallel() != 0;
#else
  return false;
#endif
}

// threads <= 0: no change.
inline void set_thread_count([[maybe_unused]] int threads) noexcept {
#ifdef _OPENMP
  if (threads > 0) omp_set_num_threads(threads);
#endif
}

}  // namespace quench
