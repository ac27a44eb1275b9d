// Attention sinks over the results of any attention kernel: lse' = log(exp(lse) + exp(sink)), out' = out exp(lse -
// lse'). With out' and lse', the gradients of q, k and v are those of plain attention.

#include <cmath>

#include "core/cuda/attention/attention_kernels.h"
#include "core/cuda/attention/attention_sequences.h"
#include "core/cuda/attention/attention_sinks.cuh"
#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {
namespace {

constexpr int kRowsPerCta = 8;  // a warp each
constexpr int kRowThreads = 32 * kRowsPerCta, kSumThreads = 256;

// A row of a sequence, and its element of lse.
struct SinkRow {
  bool exists;
  std::int64_t row, lse;
};
__device__ inline SinkRow sink_row(const SequenceTiles& tiles, const LseLayout& at) {
  const auto [s, tile] = find_tile(tiles, static_cast<int>(blockIdx.x));
  const std::int64_t query = tile * kRowsPerCta + threadIdx.x / 32;
  return {query < s.q_length, s.q_begin + query, s.q_begin * at.sequence + blockIdx.y * at.head + query * at.row};
}

// Grid: (row tile, head). Memory bound: 2 * D elements a row.
template <class T>
__global__ __launch_bounds__(kRowThreads) void add_sinks_kernel(const __grid_constant__ SequenceTiles tiles, T* out,
                                                                float* lse, LseLayout at, const float* sinks, int dim) {
  const SinkRow r = sink_row(tiles, at);
  if (!r.exists) return;
  const float plain = lse[r.lse], sink = sinks[blockIdx.y];
  if (plain == -INFINITY) return;  // no visible key
  const SinkedRow sinked(plain, sink);
  T* row = out + (r.row * gridDim.y + blockIdx.y) * dim;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int d = lane; d < dim; d += 32) row[d] = from_float<T>(to_float(row[d]) * sinked.factor);
  __syncwarp();
  if (lane == 0) lse[r.lse] = sinked.lse;
}

// terms[head, row] = -exp(sink - lse) (dout . out).
template <class T>
__global__ __launch_bounds__(kRowThreads) void sink_terms_kernel(const __grid_constant__ SequenceTiles tiles,
                                                                 const T* dout, const T* out, const float* lse,
                                                                 LseLayout at, const float* sinks, float* terms,
                                                                 std::int64_t rows, int dim) {
  const SinkRow r = sink_row(tiles, at);
  if (!r.exists) return;
  const std::int64_t first = (r.row * gridDim.y + blockIdx.y) * dim;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sum = 0;
  for (int d = lane; d < dim; d += 32) sum = fmaf(to_float(dout[first + d]), to_float(out[first + d]), sum);
  sum = warp_reduce(sum, Sum());
  const float all = lse[r.lse];
  if (lane == 0) terms[blockIdx.y * rows + r.row] = all == -INFINITY ? 0.0f : -expf(sinks[blockIdx.y] - all) * sum;
}

// One CTA a head, fixed order.
__global__ __launch_bounds__(kSumThreads) void sum_terms_kernel(const float* terms, std::int64_t rows, float* dsinks) {
  __shared__ float scratch[33];
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < rows; i += kSumThreads) sum += terms[blockIdx.x * rows + i];
  sum = block_reduce<kSumThreads>(sum, 0.0f, scratch, Sum());
  if (threadIdx.x == 0) dsinks[blockIdx.x] = sum;
}

template <class Launch>
void for_row_tiles(std::span<const SequenceRange> sequences, std::int64_t heads, const Launch& run) {
  for_sequence_tiles(
      sequences, kRowsPerCta, [](const SequenceRange& s) { return s.q_length; },
      [&](const SequenceTiles& tiles) {
        run(tiles, dim3(static_cast<unsigned>(tiles.first_tile[tiles.count]), static_cast<unsigned>(heads)));
      });
}

}  // namespace

void add_sinks(const AttentionArgs& args, const Tensor& lse, const LseLayout& at) {
  const OpLaunch launch("attention: sinks", {&args.out, &lse, &args.sinks});
  dispatch<float, bfloat16>(args.out.dtype(), "attention: sinks", [&]<class T>() {
    for_row_tiles(args.sequences, args.out.size(1), [&](const SequenceTiles& tiles, dim3 grid) {
      launch(add_sinks_kernel<T>, grid, kRowThreads, 0, tiles, args.out.data<T>(), lse.data<float>(), at,
             static_cast<const float*>(args.sinks.data<float>()), static_cast<int>(args.out.size(2)));
    });
  });
}

void sink_gradients(const AttentionBackwardArgs& args, const LseLayout& at) {
  const OpLaunch launch("attention_backward: sinks", {&args.dout, &args.out, &args.lse, &args.sinks, &args.dsinks});
  const std::int64_t rows = args.out.size(0), heads = args.out.size(1);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor terms = Tensor::zeros({heads, rows}, DType::f32, launch.device());
  dispatch<float, bfloat16>(args.out.dtype(), "attention_backward: sinks", [&]<class T>() {
    for_row_tiles(args.sequences, heads, [&](const SequenceTiles& tiles, dim3 grid) {
      launch(sink_terms_kernel<T>, grid, kRowThreads, 0, tiles, static_cast<const T*>(args.dout.data<T>()),
             static_cast<const T*>(args.out.data<T>()), static_cast<const float*>(args.lse.data<float>()), at,
             static_cast<const float*>(args.sinks.data<float>()), terms.data<float>(), rows,
             static_cast<int>(args.out.size(2)));
    });
  });
  launch(sum_terms_kernel, static_cast<unsigned>(heads), kSumThreads, 0, static_cast<const float*>(terms.data<float>()),
         rows, args.dsinks.data<float>());
}

}  // namespace quench::cuda
