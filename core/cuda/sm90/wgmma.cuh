#pragma once
// wgmma wrappers: 64-row warpgroup MMA, operands in shared memory, or a in registers (PTX ISA 8.x).
//
// Accumulators: of row 16 (t / 32) + t % 32 / 4, thread t holds columns 8 j + 2 (t % 4) (+ 1) in d[4 j] (d[4 j + 1]);
// of row + 8 the same columns in d[4 j + 2], d[4 j + 3].

#include <cuda_runtime_api.h>

#include <cstdint>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define QUENCH_HAS_WGMMA 1
#endif

namespace quench::cuda {

// 128-byte swizzle (1,024-byte atoms of 8 rows). block_bytes: stride of an MN-major operand's 64-row or 64-column
// blocks; ignored for K-major.
__device__ inline std::uint64_t smem_descriptor(std::uint32_t shared, std::uint32_t block_bytes) {
  constexpr std::uint64_t kPattern = 1024 >> 4, kSwizzle128 = 1;
  return static_cast<std::uint64_t>((shared & 0x3FFFFu) >> 4) | static_cast<std::uint64_t>(block_bytes >> 4) << 16 |
         kPattern << 32 | kSwizzle128 << 62;
}

__device__ inline void wgmma_fence() {
#ifdef QUENCH_HAS_WGMMA
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void wgmma_commit() {
#ifdef QUENCH_HAS_WGMMA
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Until at most kPending groups are in flight.
template <int kPending>
__device__ inline void wgmma_wait() {
#ifdef QUENCH_HAS_WGMMA
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
}
// Compiler fence: accumulator reads stay after wgmma_wait, writes before the next wgmma_fence.
template <int kCount>
__device__ inline void wgmma_fence_operand(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kCount>
__device__ inline void wgmma_fence_operand(int (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

// Zeros for ptxas before 12.9, which runs wgmma one by one (C7515) where accumulators have no values on entry.
template <class Value, int kCount>
__device__ inline void define_accumulators([[maybe_unused]] Value (&d)[kCount]) {
#if CUDART_VERSION < 12090
#pragma unroll
  for (int i = 0; i < kCount; ++i) d[i] = Value{0};
#endif
}

#define QUENCH_ACC_8(d, i)                                                                                    \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define QUENCH_INT_ACC_8(d, i)                                                                                \
  "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]), \
      "+r"(d[i + 7])
#define QUENCH_INT_ACC_64(d, i)                                                                                 \
  QUENCH_INT_ACC_8(d, i), QUENCH_INT_ACC_8(d, i + 8), QUENCH_INT_ACC_8(d, i + 16), QUENCH_INT_ACC_8(d, i + 24), \
      QUENCH_INT_ACC_8(d, i + 32), QUENCH_INT_ACC_8(d, i + 40), QUENCH_INT_ACC_8(d, i + 48),                    \
      QUENCH_INT_ACC_8(d, i + 56)
#define QUENCH_ACC_64(d, i)                                                                     \
  QUENCH_ACC_8(d, i), QUENCH_ACC_8(d, i + 8), QUENCH_ACC_8(d, i + 16), QUENCH_ACC_8(d, i + 24), \
      QUENCH_ACC_8(d, i + 32), QUENCH_ACC_8(d, i + 40), QUENCH_ACC_8(d, i + 48), QUENCH_ACC_8(d, i + 56)
#define QUENCH_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define QUENCH_NAMES_32 \
  QUENCH_NAMES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define QUENCH_NAMES_64                                                                \
  QUENCH_NAMES_32                                                                      \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define QUENCH_NAMES_128                                                                         \
  QUENCH_NAMES_64                                                                                \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// d = a * b (+ d with `add`), f32 accumulators.
template <bool kMnMajorA, bool kMnMajorB>
__device__ inline void wgmma_m64n256k16_bf16(float (&d)[128], std::uint64_t a, std::uint64_t b, bool add) {
#ifdef QUENCH_HAS_WGMMA
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" QUENCH_NAMES_128
      "}, %128, %129, add, 1, 1, %131, %132;\n"
      "}\n"
      : QUENCH_ACC_64(d, 0), QUENCH_ACC_64(d, 64)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(kMnMajorA ? 1 : 0), "n"(kMnMajorB ? 1 : 0));
#endif
}

// K-major. The accumulator keeps about 14 bits.
__device__ inline void wgmma_m64k32_e4m3(float (&d)[128], std::uint64_t a, std::uint64_t b, bool add) {
#ifdef QUENCH_HAS_WGMMA
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" QUENCH_NAMES_128
      "}, %128, %129, add, 1, 1;\n"
      "}\n"
      : QUENCH_ACC_64(d, 0), QUENCH_ACC_64(d, 64)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
#endif
}
__device__ inline void wgmma_m64k32_e4m3(float (&d)[64], std::uint64_t a, std::uint64_t b, bool add) {
#ifdef QUENCH_HAS_WGMMA
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" QUENCH_NAMES_64
      "}, %64, %65, add, 1, 1;\n"
      "}\n"
      : QUENCH_ACC_64(d, 0)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
#endif
}

// K-major, exact s32 accumulators.
__device__ inline void wgmma_m64n256k32_int8(int (&d)[128], std::uint64_t a, std::uint64_t b, bool add) {
#ifdef QUENCH_HAS_WGMMA
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {" QUENCH_NAMES_128
      "}, %128, %129, add;\n"
      "}\n"
      : QUENCH_INT_ACC_64(d, 0), QUENCH_INT_ACC_64(d, 64)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
#endif
}

// d += a * b, or a * b without `add`: a [64, 16] in registers, fragments of mma.m16n8k16 in each warp; b K-major.
__device__ inline void wgmma_k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint64_t b, bool add) {
#ifdef QUENCH_HAS_WGMMA
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %9, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, add, 1, 1, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
#endif
}
__device__ inline void wgmma_k16_bf16(float (&d)[8], const std::uint32_t (&a)[4], std::uint64_t b, bool add) {
#ifdef QUENCH_HAS_WGMMA
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, %12, add, 1, 1, 0;\n"
      "}\n"
      : QUENCH_ACC_8(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
#endif
}
__device__ inline void wgmma_k16_bf16(float (&d)[16], const std::uint32_t (&a)[4], std::uint64_t b, bool add) {
#ifdef QUENCH_HAS_WGMMA
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" QUENCH_NAMES_16
      "}, {%16, %17, %18, %19}, %20, add, 1, 1, 0;\n"
      "}\n"
      : QUENCH_ACC_8(d, 0), QUENCH_ACC_8(d, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
#endif
}
__device__ inline void wgmma_k16_bf16(float (&d)[32], const std::uint32_t (&a)[4], std::uint64_t b, bool add) {
#ifdef QUENCH_HAS_WGMMA
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" QUENCH_NAMES_32
      "}, {%32, %33, %34, %35}, %36, add, 1, 1, 0;\n"
      "}\n"
      : QUENCH_ACC_8(d, 0), QUENCH_ACC_8(d, 8), QUENCH_ACC_8(d, 16), QUENCH_ACC_8(d, 24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
#endif
}

#undef QUENCH_INT_ACC_8
#undef QUENCH_INT_ACC_64
#undef QUENCH_ACC_8
#undef QUENCH_ACC_64
#undef QUENCH_NAMES_16
#undef QUENCH_NAMES_32
#undef QUENCH_NAMES_64
#undef QUENCH_NAMES_128

}  // namespace quench::cuda
