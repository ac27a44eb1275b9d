#pragma once
// Kernels whose blocks are put in place while the kernel before them on the stream still runs (programmatic dependent
// launch, compute capability 9.0): what a launch costs and how long it takes to fill the GPU is hidden. It counts where
// kernels are short, as in generation: OpLaunch::early() launches those of few rows so. Launched otherwise, these calls
// do nothing. Builds that hold code for older GPUs too leave all of it out (QUENCH_CUDA_EARLY_START).

namespace quench::cuda {

// The kernel behind this one may put its blocks in place, as soon as all blocks of this one have come here.
__device__ inline void let_next_start() {
#if defined(QUENCH_CUDA_EARLY_START)
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Every thread of a kernel launched early calls it before it reads or writes memory: returns when everything before it
// on the stream is done. Until then nothing can be relied on, not even weights, unless core/device/constant_weights.h
// promises them; they may be fetched into the second-level cache, where they do not become stale.
__device__ inline void wait_for_previous() {
#if defined(QUENCH_CUDA_EARLY_START)
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Both, for kernels with nothing to do before.
__device__ inline void start_early() {
  let_next_start();
  wait_for_previous();
}

// 128 bytes around an address into the second-level cache.
__device__ inline void fetch_to_cache(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace quench::cuda
