#include "core/ops/argmax.h"

#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kPart = 4096;  // elements per CTA, about

using Key = unsigned long long;

struct LargerKey {
  __device__ Key operator()(Key a, Key b) const { return a > b ? a : b; }
};
struct SmallerIndex {
  __device__ unsigned operator()(unsigned a, unsigned b) const { return a < b ? a : b; }
};

// Order-preserving: larger values, then smaller indices; 0 is the identity.
__device__ Key key_of(float value, std::uint32_t index) {
  const std::uint32_t bits = __float_as_uint(value + 0.0f);  // maps -0 to 0
  const std::uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return Key{ordered} << 32 | ~index;
}

struct Found {
  Key best;
  unsigned nonfinite;  // first, or kNone
};
constexpr unsigned kNone = ~0u;

__device__ Found block_found(Found mine) {
  __shared__ Key keys[33];
  __shared__ unsigned nonfinite[33];
  return {block_reduce<kThreads>(mine.best, Key{0}, keys, LargerKey()),
          block_reduce<kThreads>(mine.nonfinite, kNone, nonfinite, SmallerIndex())};
}

// Grid: row, part of a row.
template <class T>
__global__ __launch_bounds__(kThreads) void argmax_kernel(const T* x, std::uint32_t columns, bool wide, Found* found) {
  pdl_sync();
  constexpr int kWidth = kVectorWidth<T>;
  const T* row = x + std::size_t{blockIdx.x} * columns;
  Found mine{0, kNone};
  const auto see = [&](float value, std::uint32_t i) {
    if (!isfinite(value)) mine.nonfinite = min(mine.nonfinite, i);
    if (value == value) mine.best = LargerKey()(mine.best, key_of(value, i));
  };
  const std::uint32_t step = gridDim.y * kThreads, first = blockIdx.y * kThreads + threadIdx.x;
  const std::uint32_t vectors = wide ? columns / kWidth : 0;
#pragma unroll 4
  for (std::uint32_t v = first; v < vectors; v += step) {
    const Vector<T> values = reinterpret_cast<const Vector<T>*>(row)[v];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) see(to_float(values[j]), v * kWidth + static_cast<std::uint32_t>(j));
  }
  for (std::uint32_t i = vectors * kWidth + first; i < columns; i += step) see(to_float(row[i]), i);
  mine = block_found(mine);
  if (threadIdx.x == 0) found[std::size_t{blockIdx.x} * gridDim.y + blockIdx.y] = mine;
}

// One CTA per row.
__global__ __launch_bounds__(kThreads) void argmax_merge_kernel(const Found* found, unsigned parts, std::int32_t* index,
                                                                std::int32_t* first_nonfinite) {
  pdl_sync();
  Found mine{0, kNone};
  if (threadIdx.x < parts) mine = found[std::size_t{blockIdx.x} * parts + threadIdx.x];
  mine = block_found(mine);
  if (threadIdx.x != 0) return;
  index[blockIdx.x] = mine.best == 0 ? 0 : static_cast<std::int32_t>(~static_cast<std::uint32_t>(mine.best));
  if (first_nonfinite != nullptr) first_nonfinite[blockIdx.x] = static_cast<std::int32_t>(mine.nonfinite);
}

void argmax(const ArgmaxArgs& args) {
  const OpLaunch launch("argmax", {&args.x, &args.index});
  const auto rows = static_cast<unsigned>(args.x.size(0)), columns = static_cast<unsigned>(args.x.size(1));
  const unsigned parts = std::clamp(columns / kPart, 1u, static_cast<unsigned>(kThreads));
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor workspace =
      Tensor::empty({static_cast<std::int64_t>(rows * parts * sizeof(Found))}, DType::u8, launch.device());
  auto* found = static_cast<Found*>(workspace.raw_data());
  dispatch<float, bfloat16>(args.x.dtype(), "argmax", [&]<class T>() {
    const bool wide = rows_are_wide<T>(args.x.raw_data(), args.x.size(1), args.x.size(1));
    launch.early(rows, argmax_kernel<T>, dim3(rows, parts), kThreads, 0, args.x.data<T>(), columns, wide, found);
  });
  launch.early(rows, argmax_merge_kernel, rows, kThreads, 0, found, parts, args.index.data<std::int32_t>(),
               args.first_nonfinite.defined() ? args.first_nonfinite.data<std::int32_t>() : nullptr);
}

QUENCH_CUDA_KERNEL(argmax_slot, argmax);

}  // namespace
}  // namespace quench::cuda
