#pragma once
// Programmatic dependent launch (PDL, compute capability 9.0): the next kernel's CTAs start while the previous kernel
// drains, hiding launch latency. Launched by OpLaunch::early(); no effect under an ordinary launch. Absent in builds
// for older GPUs (QUENCH_CUDA_PDL).

namespace quench::cuda {

// Allows the dependent kernel to launch, once all CTAs of this one have called it.
__device__ inline void pdl_launch_dependents() {
#if defined(QUENCH_CUDA_PDL)
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits for all preceding work of the stream. Every thread of a PDL kernel calls it before its first global access.
// Earlier loads: only weights under core/device/read_only_weights.h, and L2 prefetch.
__device__ inline void pdl_wait() {
#if defined(QUENCH_CUDA_PDL)
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Both, for kernels without a prologue.
__device__ inline void pdl_sync() {
  pdl_launch_dependents();
  pdl_wait();
}

// L2 prefetch of the 128-byte line of an address.
__device__ inline void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace quench::cuda
