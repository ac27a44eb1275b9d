#pragma once
// Occupancy for __launch_bounds__.

namespace quench::cuda {

// CTAs of kThreads per SM: `wanted`, or as many as the SM of the compiled architecture holds. SM86, SM89 and SM120 hold
// 1,536 threads, SM80, SM90 and SM100 2,048.
template <int kThreads>
constexpr int ctas_per_sm(int wanted) {
#if defined(__CUDA_ARCH__) && ((__CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900) || __CUDA_ARCH__ >= 1200)
  constexpr int kSmThreads = 1536;
#else
  constexpr int kSmThreads = 2048;
#endif
  return wanted * kThreads <= kSmThreads ? wanted : kSmThreads / kThreads;
}

}  // namespace quench::cuda
