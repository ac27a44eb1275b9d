// Attention backward for any shape. With P = exp(scale Q K^T - lse) and delta = rowsum(dO * O):
//   dV = P^T dO,  dS = P * (dO V^T - delta) (times the slope of a soft cap),  dQ = scale dS K,  dK = scale dS^T Q.
// Deterministic, no atomics: dQ and dK/dV kernels each recompute the scores (seven GEMMs per tile, not five).

#include "core/cuda/attention/attention_kernels.h"
#include "core/cuda/attention/attention_tile.cuh"
#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"

namespace quench::cuda {
namespace {

template <class T>
struct BackwardOperands {
  Heads<const T> dout, q, k, v, out;
  Heads<T> dq, dk, dv;
  const float* lse;
  float* delta;  // layout of lse
  LseLayout lse_at;
  std::int64_t group;
  bool causal;
  std::int64_t window;
  float scale, scale_log2;
  float cap;  // unscaled_cap(); 0: none

  __device__ std::int64_t lse_index(const SequenceRange& s, std::int64_t head, std::int64_t query) const {
    return s.q_begin * lse_at.sequence + head * lse_at.head + query * lse_at.row;
  }
};

constexpr int kDeltaRows = kTileThreads / 32;

// One warp per row.
template <class T>
__global__ __launch_bounds__(kTileThreads) void delta_kernel(const __grid_constant__ SequenceTiles tiles,
                                                             const BackwardOperands<T> x) {
  const auto [s, tile] = find_tile(tiles, static_cast<int>(blockIdx.x));
  const std::int64_t head = blockIdx.y, query = tile * kDeltaRows + threadIdx.x / 32;
  if (query >= s.q_length) return;
  const Head<const T> out = x.out.head(head), dout = x.dout.head(head);
  const T *a = out.row(s.q_begin + query), *b = dout.row(s.q_begin + query);
  float sum = 0;
  for (int d = static_cast<int>(threadIdx.x) % 32; d < out.dim; d += 32)
    sum = fmaf(to_float(a[d]), to_float(b[d]), sum);
  sum = warp_reduce(sum, Sum());
  if (threadIdx.x % 32 == 0) x.delta[x.lse_index(s, head, query)] = sum;
}

// lse (base 2) and delta of a query tile.
template <class Shape, class T>
__device__ void load_statistics(const BackwardOperands<T>& x, const SequenceRange& s, std::int64_t head,
                                std::int64_t first, int rows, float* lse, float* delta) {
  for (int i = static_cast<int>(threadIdx.x); i < rows; i += kTileThreads) {
    const std::int64_t at = x.lse_index(s, head, first + i);
    lse[i] = x.lse[at] * kLog2E;
    delta[i] = x.delta[at];
  }
}

template <class Shape, class T>
__device__ void score_gradients(const BackwardOperands<T>& x, const SequenceRange& s, std::int64_t query, int rows,
                                std::int64_t key, const float* queries, const float* keys, const float* douts,
                                const float* values, const float* lse, const float* delta,
                                float (&p)[Shape::kRows][Shape::kRows], float (&ds)[Shape::kRows][Shape::kRows]) {
  row_products<Shape>(queries, keys, p);
  row_products<Shape>(douts, values, ds);
  const int column = static_cast<int>(threadIdx.x) % 16, thread_row = static_cast<int>(threadIdx.x) / 16 * Shape::kRows;
#pragma unroll
  for (int i = 0; i < Shape::kRows; ++i) {
    const int row = thread_row + i;
    const std::int64_t visible = row < rows ? visible_keys(s, x.causal, query + row) - key : 0;
    const std::int64_t hidden = first_visible_key(s, x.window, query + row) - key;
#pragma unroll
    for (int j = 0; j < Shape::kRows; ++j) {
      const bool seen = column + 16 * j >= hidden && column + 16 * j < visible;
      const CappedScore score = capped(p[i][j], x.cap);
      p[i][j] = seen ? exp2f(fmaf(score.score, x.scale_log2, -lse[row])) : 0.0f;
      ds[i][j] = seen ? p[i][j] * (ds[i][j] - delta[row]) * score.slope : 0.0f;
    }
  }
}

// One CTA per query tile and head.
template <class Shape, class T>
__global__ __launch_bounds__(kTileThreads) void query_gradient_kernel(const __grid_constant__ SequenceTiles tiles,
                                                                      const BackwardOperands<T> x) {
  constexpr int R = Shape::kRows, kTile = Shape::kTile;
  extern __shared__ float4 shared[];
  float* queries = reinterpret_cast<float*>(shared);
  float* douts = queries + Shape::kTileFloats;
  float* keys = douts + Shape::kTileFloats;
  float* values = keys + Shape::kTileFloats;
  float* weights = values + Shape::kTileFloats;
  float* lse = weights + Shape::kScoreFloats;
  float* delta = lse + kTile;

  const auto [s, tile] = find_tile(tiles, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  const std::int64_t head = blockIdx.y, first = tile * kTile;
  const int rows = static_cast<int>(min(std::int64_t{kTile}, s.q_length - first));
  const Head<const T> k = x.k.head(head / x.group), v = x.v.head(head / x.group);
  load_tile<Shape>(queries, x.q.head(head), s.q_begin + first, rows);
  load_tile<Shape>(douts, x.dout.head(head), s.q_begin + first, rows);
  load_statistics<Shape>(x, s, head, first, rows, lse, delta);

  TileSums<Shape> dq;
  const std::int64_t end = visible_keys(s, x.causal, first + rows - 1);
  for (std::int64_t key = first_visible_key(s, x.window, first) / kTile * kTile; key < end; key += kTile) {
    const int columns = static_cast<int>(min(std::int64_t{kTile}, s.k_length - key));
    __syncthreads();
    load_tile<Shape>(keys, k, s.k_begin + key, columns);
    load_tile<Shape>(values, v, s.k_begin + key, columns);
    __syncthreads();
    float p[R][R], ds[R][R];
    score_gradients<Shape>(x, s, first, rows, key, queries, keys, douts, values, lse, delta, p, ds);
    store_scores<Shape>(weights, ds);
    __syncthreads();
    dq.template add_product<false>(weights, keys);
  }
  const Head<T> to = x.dq.head(head);
  const int thread_row = static_cast<int>(threadIdx.x) / 16 * R;
#pragma unroll
  for (int i = 0; i < R; ++i)
    if (thread_row + i < rows) dq.store_row(i, x.scale, to.row(s.q_begin + first + thread_row + i), to.dim);
}

// One CTA per key tile and KV head, summed over query heads and tiles in order.
template <class Shape, class T>
__global__ __launch_bounds__(kTileThreads) void key_gradient_kernel(const __grid_constant__ SequenceTiles tiles,
                                                                    const BackwardOperands<T> x) {
  constexpr int R = Shape::kRows, kTile = Shape::kTile;
  extern __shared__ float4 shared[];
  float* keys = reinterpret_cast<float*>(shared);
  float* values = keys + Shape::kTileFloats;
  float* queries = values + Shape::kTileFloats;
  float* douts = queries + Shape::kTileFloats;
  float* weights = douts + Shape::kTileFloats;
  float* lse = weights + Shape::kScoreFloats;
  float* delta = lse + kTile;

  const auto [s, tile] = find_tile(tiles, static_cast<int>(blockIdx.x));
  const std::int64_t kv_head = blockIdx.y, first = tile * kTile;
  const int columns = static_cast<int>(min(std::int64_t{kTile}, s.k_length - first));
  load_tile<Shape>(keys, x.k.head(kv_head), s.k_begin + first, columns);
  load_tile<Shape>(values, x.v.head(kv_head), s.k_begin + first, columns);

  // First query that sees the first key.
  const std::int64_t from = x.causal ? max(std::int64_t{0}, first - (s.k_length - s.q_length)) / kTile * kTile : 0;
  // First query whose window is past the last key.
  const std::int64_t last_key = first + columns - 1;
  const std::int64_t until =
      x.window == 0 ? s.q_length
                    : max(std::int64_t{0}, min(s.q_length, last_key + x.window - (s.k_length - s.q_length)));
  TileSums<Shape> dk, dv;
  for (std::int64_t head = kv_head * x.group; head < (kv_head + 1) * x.group; ++head)
    for (std::int64_t query = from; query < until; query += kTile) {
      const int rows = static_cast<int>(min(std::int64_t{kTile}, s.q_length - query));
      __syncthreads();
      load_tile<Shape>(queries, x.q.head(head), s.q_begin + query, rows);
      load_tile<Shape>(douts, x.dout.head(head), s.q_begin + query, rows);
      load_statistics<Shape>(x, s, head, query, rows, lse, delta);
      __syncthreads();
      float p[R][R], ds[R][R];
      score_gradients<Shape>(x, s, query, rows, first, queries, keys, douts, values, lse, delta, p, ds);
      store_scores<Shape>(weights, p);
      __syncthreads();
      dv.template add_product<true>(weights, douts);
      __syncthreads();
      store_scores<Shape>(weights, ds);
      __syncthreads();
      dk.template add_product<true>(weights, queries);
    }
  const Head<T> dk_to = x.dk.head(kv_head), dv_to = x.dv.head(kv_head);
  const int thread_row = static_cast<int>(threadIdx.x) / 16 * R;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (thread_row + i >= columns) continue;
    const std::int64_t row = s.k_begin + first + thread_row + i;
    dk.store_row(i, x.scale, dk_to.row(row), dk_to.dim);
    dv.store_row(i, 1.0f, dv_to.row(row), dv_to.dim);
  }
}

// Shared memory of both gradient kernels.
template <class Shape>
constexpr std::size_t kSharedBytes = sizeof(float) * (4 * Shape::kTileFloats + Shape::kScoreFloats + 2 * Shape::kTile);

template <class T>
void backward(const AttentionBackwardArgs& args, const LseLayout& lse) {
  const OpLaunch launch("attention_backward",
                        {&args.dout, &args.q, &args.k, &args.v, &args.out, &args.lse, &args.dq, &args.dk, &args.dv});
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor delta = Tensor::empty(args.lse.shape(), DType::f32, args.q.device());
  const BackwardOperands<T> operands{.dout = heads_of<const T>(args.dout),
                                     .q = heads_of<const T>(args.q),
                                     .k = heads_of<const T>(args.k),
                                     .v = heads_of<const T>(args.v),
                                     .out = heads_of<const T>(args.out),
                                     .dq = heads_of<T>(args.dq),
                                     .dk = heads_of<T>(args.dk),
                                     .dv = heads_of<T>(args.dv),
                                     .lse = args.lse.data<float>(),
                                     .delta = delta.data<float>(),
                                     .lse_at = lse,
                                     .group = args.q.size(1) / args.k.size(1),
                                     .causal = args.causal,
                                     .window = args.window,
                                     .scale = args.scale,
                                     .scale_log2 = args.scale * kLog2E,
                                     .cap = unscaled_cap(args.soft_cap, args.scale)};
  const auto queries = [](const SequenceRange& s) { return s.q_length; };
  const auto keys = [](const SequenceRange& s) { return s.k_length; };
  const auto run = [&](auto* kernel, std::int64_t heads, std::size_t shared, const auto& length, std::int64_t size) {
    for_sequence_tiles(args.sequences, size, length, [&](const SequenceTiles& tiles) {
      const dim3 grid(static_cast<unsigned>(tiles.first_tile[tiles.count]), static_cast<unsigned>(heads));
      launch(kernel, grid, kTileThreads, shared, tiles, operands);
    });
  };
  const auto run_tiles = [&]<class Shape>() {
    run(query_gradient_kernel<Shape, T>, args.q.size(1), kSharedBytes<Shape>, queries, Shape::kTile);
    run(key_gradient_kernel<Shape, T>, args.k.size(1), kSharedBytes<Shape>, keys, Shape::kTile);
  };
  run(delta_kernel<T>, args.q.size(1), 0, queries, kDeltaRows);
  with_tile_shape(args.q.size(2), [&](auto shape) {
    using Shape = decltype(shape);
    if constexpr (kSharedBytes < Shape >> kLeastSharedBytes) {
      using Half = TileShape<Shape::kTile / 2, Shape::kDim>;
      static_assert(kSharedBytes<Half> <= kLeastSharedBytes);
      if (kSharedBytes < Shape >> static_cast<std::size_t>(max_shared_bytes(launch.device())))
        return run_tiles.template operator()<Half>();
    }
    run_tiles.template operator()<Shape>();
  });
}

}  // namespace

void tiled_attention_backward(const AttentionBackwardArgs& args, const LseLayout& lse) {
  if (args.q.dtype() == DType::f32)
    backward<float>(args, lse);
  else
    backward<bfloat16>(args, lse);
}

}  // namespace quench::cuda
