#include "core/ops/global_norm.h"

#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/tensor_chunks.cuh"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 64 * 1024;  // per partial sum
constexpr int kWidth = 8;          // per thread
constexpr int kFinalThreads = 1024;

struct Entry {
  const void* data;
  std::int64_t numel;
  bool is_bf16;
  bool wide;
};
constexpr int kCapacity = 1024;
using Table = ChunkTable<Entry, kCapacity>;
static_assert(sizeof(Table) + sizeof(double*) <= kMaxParameterBytes);

// Four accumulators per thread; assignment by index in the chunk, not by address.
struct Squares {
  double sums[4] = {};
  __device__ void add(int i, float x) {
    const auto wide = static_cast<double>(x);
    sums[i % 4] = fma(wide, wide, sums[i % 4]);  // exact: 24-bit mantissas squared fit into 53 bits
  }
  [[nodiscard]] __device__ double total() const { return (sums[0] + sums[1]) + (sums[2] + sums[3]); }
};

template <class T, bool kWide>
__device__ double sum_of_squares(const T* x, int n) {
  constexpr int kInFlight = 4, kParts = kWidth / kVectorWidth<T>;
  Squares squares;
  const int vectors = n / kWidth;
  for (int first = static_cast<int>(threadIdx.x); first < vectors; first += kInFlight * kThreads) {
    Vector<T> parts[kInFlight][kParts] = {};  // zero-filled
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int v = first + k * kThreads;
      if (v >= vectors) continue;
      const T* from = x + v * kWidth;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        if constexpr (kWide) {
          parts[k][part] = load_streaming(reinterpret_cast<const Vector<T>*>(from) + part);
        } else {
#pragma unroll
          for (int i = 0; i < kVectorWidth<T>; ++i) parts[k][part][i] = from[part * kVectorWidth<T> + i];
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
#pragma unroll
      for (int i = 0; i < kWidth; ++i) squares.add(i, to_float(parts[k][i / kVectorWidth<T>][i % kVectorWidth<T>]));
  }
  if (const int i = vectors * kWidth + static_cast<int>(threadIdx.x); i < n) squares.add(0, to_float(x[i]));
  return squares.total();
}

template <class T>
__device__ double sum_of_squares(const Entry& e, std::int64_t begin, int n) {
  const T* x = static_cast<const T*>(e.data) + begin;
  return e.wide ? sum_of_squares<T, true>(x, n) : sum_of_squares<T, false>(x, n);
}

// Order depends on n alone.
__global__ __launch_bounds__(kThreads) void chunk_squares_kernel(const __grid_constant__ Table table, double* partial) {
  __shared__ double scratch[33];
  const auto [e, begin, n] = table.chunk<kChunk>();
  const double sum = e.is_bf16 ? sum_of_squares<bfloat16>(e, begin, n) : sum_of_squares<float>(e, begin, n);
  const double total = block_reduce<kThreads>(sum, 0.0, scratch, Sum());
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

// One CTA, in chunk order.
__global__ __launch_bounds__(kFinalThreads) void sum_partials_kernel(const double* partial, std::int64_t chunks,
                                                                     double* result) {
  __shared__ double scratch[33];
  double sum = 0;
#pragma unroll 8
  for (std::int64_t i = threadIdx.x; i < chunks; i += kFinalThreads) sum += partial[i];
  sum = block_reduce<kFinalThreads>(sum, 0.0, scratch, Sum());
  if (threadIdx.x == 0) *result = sum;
}

__global__ void clip_scale_kernel(const double* squared_norm, float max_norm, float* norm_out, float* scale_out) {
  const auto norm = static_cast<float>(sqrt(*squared_norm));
  float scale = 1.0f;
  if (!isfinite(norm))
    scale = bit_cast<float>(kF32QuietNan);
  else if (max_norm > 0.0f)
    scale = min(1.0f, max_norm / (norm + 1e-6f));
  *norm_out = norm;
  *scale_out = scale;
}

std::int64_t chunks_of(const Tensor& t) {
  return (t.numel() + kChunk - 1) / kChunk;
}

void squared_norm(const SquaredNormArgs& args) {
  const OpLaunch launch("squared_norm", {&args.result, args.tensors.empty() ? &args.result : &args.tensors.front()});
  const MemoryScope scope(MemoryCategory::workspace);
  std::int64_t chunks = 0;
  for (const Tensor& t : args.tensors) chunks += chunks_of(t);
  const Tensor partial = Tensor::empty({std::max<std::int64_t>(chunks, 1)}, DType::f64, launch.device());
  auto* next = partial.data<double>();
  const auto launch_table = [&](const Table& table) {
    launch(chunk_squares_kernel, dim3(static_cast<unsigned>(table.chunks())), kThreads, 0, table, next);
    next += table.chunks();
  };
  const auto make_entry = [](const Tensor& t) {
    return Entry{t.raw_data(), t.numel(), t.dtype() == DType::bf16,
                 reinterpret_cast<std::uintptr_t>(t.raw_data()) % 16 == 0};
  };
  for_tables<Table>(args.tensors, kChunk, &Entry::numel, make_entry, launch_table);
  launch(sum_partials_kernel, 1, kFinalThreads, 0, partial.data<double>(), chunks, args.result.data<double>());
}

void clip_scale(const ClipScaleArgs& args) {
  const OpLaunch launch("clip_scale", {&args.squared_norm, &args.norm, &args.scale});
  launch(clip_scale_kernel, 1, 1, 0, args.squared_norm.data<double>(), args.max_norm, args.norm.data<float>(),
         args.scale.data<float>());
}

QUENCH_CUDA_KERNEL(squared_norm_slot, squared_norm);
QUENCH_CUDA_KERNEL(clip_scale_slot, clip_scale);

}  // namespace
}  // namespace quench::cuda
