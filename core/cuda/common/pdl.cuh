#pragma once
// Programmatic dependent launch (PDL, compute capability 9.0): a kernel's CTAs start while the previous kernel drains,
// hiding launch latency. By OpLaunch::early(); no effect otherwise, and absent in code for older devices.

namespace quench::cuda {

// Effective once all CTAs have called it.
__device__ inline void pdl_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits for all preceding work of the stream. Every thread of a PDL kernel calls it before its first global access,
// except weights under read_only_weights.h, L2 prefetches, and values that only steer one.
__device__ inline void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline void pdl_sync() {
  pdl_launch_dependents();
  pdl_wait();
}

__device__ inline void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace quench::cuda
