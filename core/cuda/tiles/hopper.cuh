#pragma once
// Instructions of compute capability 9.0 around matrix products: barriers in shared memory, copies by the tensor memory
// accelerator (TMA), clusters of blocks, registers of warp groups. PTX ISA 8.x, sections mbarrier,
// cp.async.bulk.tensor, barrier.cluster and setmaxnreg.

#include <cuda.h>

#include <cstdint>

#include "core/cuda/tiles/wgmma.cuh"

namespace quench::cuda {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void init_barrier(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// For the asynchronous copies and the other blocks of the cluster: barriers that have been initialised are seen.
__device__ inline void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// At the same barrier of block `rank` of the cluster.
__device__ inline void arrive_at(std::uint32_t barrier, std::uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// The phase ends when as many bytes have been copied, too.
__device__ inline void arrive_expecting(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Returns when the phase of this parity has ended.
__device__ inline void wait_barrier(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

[[nodiscard]] __device__ inline std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of all blocks of the cluster call it.
__device__ inline void cluster_barrier() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}

// A box of a matrix, or of one of a batch, to shared memory; what lies outside the tensor is 0.
__device__ inline void copy_box(std::uint32_t shared, const CUtensorMap* map, std::uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(shared),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
__device__ inline void copy_box(std::uint32_t shared, const CUtensorMap* map, std::uint32_t barrier, int x, int y,
                                int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}
// The same to the same place of every block of the cluster in `blocks`, a bit each, each of whose barriers counts the
// bytes.
__device__ inline void copy_box_to(std::uint16_t blocks, std::uint32_t shared, const CUtensorMap* map,
                                   std::uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4}], [%2], %5;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(blocks)
      : "memory");
}
__device__ inline void copy_box_to(std::uint16_t blocks, std::uint32_t shared, const CUtensorMap* map,
                                   std::uint32_t barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks)
      : "memory");
}

// What ordinary stores wrote to shared memory is seen by copies that are queued behind this.
__device__ inline void fence_for_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// A box from shared memory to a matrix, but for what lies outside it. Committed boxes are a group of the thread's.
__device__ inline void store_box(const CUtensorMap* map, std::uint32_t shared, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"(shared), "r"(x), "r"(y)
               : "memory");
}
__device__ inline void commit_boxes() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Returns when the shared memory of all but the last `kPending` groups has been read.
template <int kPending>
__device__ inline void wait_boxes_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Four matrices of 8 x 8 of 16 bits from registers, as sums of products lie in them, two a register; lane 8 i + j has
// the address of row j of matrix i.
__device__ inline void store_matrices(std::uint32_t shared, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                      std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

template <int kRegisters>
__device__ inline void give_registers() {
#ifdef QUENCH_HAS_WGMMA
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ inline void take_registers() {
#ifdef QUENCH_HAS_WGMMA
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

}  // namespace quench::cuda
