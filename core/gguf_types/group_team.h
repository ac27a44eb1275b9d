#pragma once
// Work of a block's groups, shared between quantizers of the CPU, where one thread takes all groups in turn, and of
// GPUs, where each group has a lane. Reductions are in the order of elements and groups, hence the same bits
// everywhere.

#include "core/number/host_device.h"

#if defined(__CUDACC__)
#define QUENCH_TEAM_INLINE __host__ __device__ __forceinline__
#else
#define QUENCH_TEAM_INLINE inline
#endif
// Loops over the elements of a group: vectors on the CPU, registers on a GPU.
#if defined(__CUDA_ARCH__)
#define QUENCH_ELEMENT_LOOP _Pragma("unroll")
#define QUENCH_LANE_LOOP _Pragma("unroll")
#elif defined(__CUDACC__)
#define QUENCH_ELEMENT_LOOP
#define QUENCH_LANE_LOOP
#else
#define QUENCH_ELEMENT_LOOP
#define QUENCH_LANE_LOOP _Pragma("omp simd")
#endif

namespace quench {

// Sums of K terms over N elements, a multiple of 8: element i in lane i % 8, then a balanced tree. term(i, out) sets
// the K terms of element i.
template <int K, int N, class Terms>
QUENCH_TEAM_INLINE void lane_sums(const Terms& terms, float (&sums)[K]) {
  constexpr int kLanes = 8;
  static_assert(N % kLanes == 0);
  float lanes[K][kLanes];
  for (int k = 0; k < K; ++k)
    for (int lane = 0; lane < kLanes; ++lane) lanes[k][lane] = 0;
  QUENCH_ELEMENT_LOOP
  for (int first = 0; first < N; first += kLanes) {
    QUENCH_LANE_LOOP
    for (int lane = 0; lane < kLanes; ++lane) {
      float each[K];
      terms(first + lane, each);
      for (int k = 0; k < K; ++k) lanes[k][lane] += each[k];
    }
  }
  for (int k = 0; k < K; ++k) {
    const float* l = lanes[k];
    sums[k] = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
  }
}

// All groups of a block in one thread.
template <int Groups>
struct SerialTeam {
  static constexpr int kGroups = Groups;
  static constexpr int kOwn = Groups;  // groups of this thread

  [[nodiscard]] QUENCH_TEAM_INLINE int group(int own) const { return own; }
  [[nodiscard]] QUENCH_TEAM_INLINE bool leads() const { return true; }  // one thread of the team
  // value(own) of group `group`, for every thread of the team.
  template <class Value>
  [[nodiscard]] QUENCH_TEAM_INLINE auto of_group(int group, const Value& value) const {
    return value(group);
  }
  // `start`, folded with the values of all groups.
  template <class T, class Fold>
  [[nodiscard]] QUENCH_TEAM_INLINE T fold(T start, const T (&own)[kOwn], const Fold& fold) const {
    for (int g = 0; g < kGroups; ++g) start = fold(start, own[g]);
    return start;
  }
  [[nodiscard]] QUENCH_TEAM_INLINE double sum(const double (&own)[kOwn]) const {
    return fold(0.0, own, [](double a, double b) { return a + b; });
  }
  // Balanced tree: group g with group g + half.
  [[nodiscard]] QUENCH_TEAM_INLINE float tree_sum(const float (&own)[kOwn]) const {
    float sums[kOwn];
    for (int g = 0; g < kOwn; ++g) sums[g] = own[g];
    for (int half = kOwn / 2; half > 0; half /= 2)
      for (int g = 0; g < half; ++g) sums[g] += sums[g + half];
    return sums[0];
  }
};

#if defined(__CUDACC__)
// A group in each of kGroups adjacent lanes of a warp, all of which take the same branches around reductions.
template <int Groups>
struct LaneTeam {
  static constexpr int kGroups = Groups;
  static constexpr int kOwn = 1;

  [[nodiscard]] __device__ __forceinline__ int group(int) const { return static_cast<int>(threadIdx.x % kGroups); }
  [[nodiscard]] __device__ __forceinline__ bool leads() const { return threadIdx.x % kGroups == 0; }
  // Stores to shared memory before it are seen after it.
  __device__ __forceinline__ void sync() const {
    if constexpr (kGroups > 1) __syncwarp(mask());
  }
  template <class Value>
  [[nodiscard]] __device__ __forceinline__ auto of_group(int group, const Value& value) const {
    if constexpr (kGroups == 1) {
      return value(0);
    } else {
      return __shfl_sync(mask(), value(0), group, kGroups);
    }
  }
  template <class T, class Fold>
  [[nodiscard]] __device__ __forceinline__ T fold(T start, const T (&own)[1], const Fold& fold) const {
    for (int g = 0; g < kGroups; ++g) start = fold(start, of_group(g, [&](int) { return own[0]; }));
    return start;
  }
  [[nodiscard]] __device__ __forceinline__ double sum(const double (&own)[1]) const {
    return fold(0.0, own, [](double a, double b) { return a + b; });
  }
  [[nodiscard]] __device__ __forceinline__ float tree_sum(const float (&own)[1]) const {
    float sum = own[0];
    for (int half = kGroups / 2; half > 0; half /= 2) sum += __shfl_xor_sync(mask(), sum, half, kGroups);
    return sum;
  }

 private:
  [[nodiscard]] static __device__ __forceinline__ unsigned mask() {
    constexpr unsigned kLanes = kGroups == 32 ? ~0u : (1u << kGroups % 32) - 1;
    return kLanes << (threadIdx.x % 32 / kGroups * kGroups);
  }
};
#endif

}  // namespace quench
