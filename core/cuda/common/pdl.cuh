#pragma once
// Programmatic dependent launch (PDL, compute capability 9.0): the next kernel's CTAs start while the previous kernel
// drains, hiding launch latency. OpLaunch::early() launches with the attribute, for short kernels (generation); under
// an ordinary launch these calls do nothing. Builds with code for older GPUs leave it out (QUENCH_CUDA_PDL).

namespace quench::cuda {

// Allows the dependent kernel to launch, once all CTAs of this one have called it.
__device__ inline void pdl_launch_dependents() {
#if defined(QUENCH_CUDA_PDL)
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits for completion of all preceding work of the stream. Every thread of a kernel launched with the attribute calls
// it before its first global access. Earlier loads are safe only for weights under core/device/read_only_weights.h; L2
// prefetch is always safe.
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
