#include "core/cuda/cudnn/attention_parts.h"

#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256, kWidth = kVectorWidth<bfloat16>;
constexpr unsigned kMaxBlocks = 8192;

struct HeadRows {
  std::int64_t row, head;  // strides in elements
};

// A vector of 8 elements per iteration.
__global__ __launch_bounds__(kThreads) void add_rows_kernel(const bfloat16* x, HeadRows from, bfloat16* out,
                                                            HeadRows to, std::int64_t rows, int heads, int vectors) {
  const std::int64_t in_row = std::int64_t{heads} * vectors, count = rows * in_row;
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = i / in_row;
    const int place = static_cast<int>(i % in_row), head = place / vectors, at = place % vectors * kWidth;
    const auto a =
        load_streaming(reinterpret_cast<const Vector<bfloat16>*>(x + row * from.row + head * from.head + at));
    auto& sum = *reinterpret_cast<Vector<bfloat16>*>(out + row * to.row + head * to.head + at);
    Vector<bfloat16> b = sum;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) b[e] = from_float<bfloat16>(to_float(a[e]) + to_float(b[e]));
    sum = b;
  }
}

__global__ __launch_bounds__(kThreads) void lse_rows_kernel(const float* from, float* to, int heads,
                                                            std::int64_t rows) {
  const std::int64_t row = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (row < rows)
    for (int head = 0; head < heads; ++head) to[head * rows + row] = from[row * heads + head];
}

unsigned blocks_of(std::int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

}  // namespace

void add_rows(const Tensor& x, const Tensor& out) {
  const OpLaunch launch("attention: sum of gradients", {&x, &out});
  const int heads = static_cast<int>(x.size(1)), vectors = static_cast<int>(x.size(2)) / kWidth;
  const std::int64_t count = x.size(0) * heads * vectors;
  launch(add_rows_kernel, dim3(std::min(blocks_of(count), kMaxBlocks)), kThreads, 0, x.data<bfloat16>(),
         HeadRows{x.stride(0), x.stride(1)}, out.data<bfloat16>(), HeadRows{out.stride(0), out.stride(1)}, x.size(0),
         heads, vectors);
}

Tensor packed_lse_rows(const Tensor& lse, std::int64_t begin, std::int64_t length) {
  const std::int64_t heads = lse.size(0);
  const Tensor rows = Tensor::empty({heads, length}, DType::f32, lse.device());
  const OpLaunch launch("attention: log-sum-exps of a sequence", {&lse, &rows});
  launch(lse_rows_kernel, dim3(blocks_of(length)), kThreads, 0, lse.data<float>() + begin * heads, rows.data<float>(),
         static_cast<int>(heads), length);
  return rows;
}

}  // namespace quench::cuda
