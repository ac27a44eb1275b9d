// Attention for any shape, f32, and what cuDNN rejects: online softmax over key tiles, without tensor cores.

#include "core/cuda/attention/attention_kernels.h"
#include "core/cuda/attention/attention_tile.cuh"
#include "core/cuda/common/launch.h"

namespace quench::cuda {
namespace {

template <class T>
struct ForwardOperands {
  Heads<const T> q, k, v;
  Heads<T> out;
  float* lse;  // optional
  LseLayout lse_at;
  std::int64_t group;  // query heads per KV head
  bool causal;
  std::int64_t window;
  float scale;  // times log2(e)
  float cap;    // unscaled_cap(); 0: none
};

// Online softmax step over a key tile: scores become weights. A row sees columns [hidden, visible).
template <class Shape>
__device__ void fold_scores(float (&scores)[Shape::kRows][Shape::kRows], const int (&hidden)[Shape::kRows],
                            const int (&visible)[Shape::kRows], float scale, float (&maxima)[Shape::kRows],
                            float (&sums)[Shape::kRows], TileSums<Shape>& out) {
  constexpr int R = Shape::kRows;
  const int x = static_cast<int>(threadIdx.x) % 16;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    float best = -INFINITY;
#pragma unroll
    for (int j = 0; j < R; ++j)
      if (x + 16 * j >= hidden[i] && x + 16 * j < visible[i]) best = fmaxf(best, scores[i][j]);
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) best = fmaxf(best, __shfl_xor_sync(0xFFFFFFFFu, best, offset));
    // Uniform over a row's 16 threads. Rows without a visible key keep minus infinity.
    const float next = visible[i] > hidden[i] ? fmaxf(maxima[i], best * scale) : maxima[i];
    const float decay = next == maxima[i] ? 1.0f : exp2f(maxima[i] - next);
    maxima[i] = next;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < R; ++j) {
      scores[i][j] =
          x + 16 * j >= hidden[i] && x + 16 * j < visible[i] ? exp2f(fmaf(scores[i][j], scale, -next)) : 0.0f;
      sum += scores[i][j];
    }
    sums[i] = fmaf(sums[i], decay, sum);  // own columns
    out.scale_row(i, decay);
  }
}

// One CTA per query tile and head. Arithmetic bound: with 64-query tiles, D * 8 bytes of shared memory per 4 * 64 * D
// operations.
template <class Shape, class T>
__global__ __launch_bounds__(kTileThreads, 2) void tiled_attention_kernel(const __grid_constant__ SequenceTiles tiles,
                                                                          const ForwardOperands<T> x) {
  constexpr int R = Shape::kRows, kTile = Shape::kTile;
  extern __shared__ float4 shared[];
  float* queries = reinterpret_cast<float*>(shared);
  float* keys = queries + Shape::kTileFloats;  // and values
  float* weights = keys + Shape::kTileFloats;

  // Longest tiles (late queries) first.
  const auto [s, tile] = find_tile(tiles, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  const std::int64_t head = blockIdx.y, first = tile * kTile;
  const int rows = static_cast<int>(min(std::int64_t{kTile}, s.q_length - first));
  const int thread_row = static_cast<int>(threadIdx.x) / 16 * R;
  const Head<const T> k = x.k.head(head / x.group), v = x.v.head(head / x.group);
  load_tile<Shape>(queries, x.q.head(head), s.q_begin + first, rows);

  float maxima[R], sums[R];
  std::int64_t reach[R], start[R];  // visible keys: [start, reach)
#pragma unroll
  for (int i = 0; i < R; ++i) {
    maxima[i] = -INFINITY;
    sums[i] = 0;
    reach[i] = thread_row + i < rows ? visible_keys(s, x.causal, first + thread_row + i) : 0;
    start[i] = first_visible_key(s, x.window, first + thread_row + i);
  }
  TileSums<Shape> out;
  const std::int64_t end = visible_keys(s, x.causal, first + rows - 1);
  for (std::int64_t key = first_visible_key(s, x.window, first) / kTile * kTile; key < end; key += kTile) {
    const int columns = static_cast<int>(min(std::int64_t{kTile}, s.k_length - key));
    __syncthreads();
    load_tile<Shape>(keys, k, s.k_begin + key, columns);
    __syncthreads();
    float scores[R][R];
    int hidden[R], visible[R];
#pragma unroll
    for (int i = 0; i < R; ++i) {
      hidden[i] = static_cast<int>(max(std::int64_t{0}, min(std::int64_t{kTile}, start[i] - key)));
      visible[i] = static_cast<int>(max(std::int64_t{0}, min(std::int64_t{kTile}, reach[i] - key)));
    }
    row_products<Shape>(queries, keys, scores);
    if (x.cap > 0.0f) {
#pragma unroll
      for (int i = 0; i < R; ++i)
#pragma unroll
        for (int j = 0; j < R; ++j) scores[i][j] = capped(scores[i][j], x.cap).score;
    }
    fold_scores<Shape>(scores, hidden, visible, x.scale, maxima, sums, out);
    store_scores<Shape>(weights, scores);
    __syncthreads();
    load_tile<Shape>(keys, v, s.k_begin + key, columns);
    __syncthreads();
    out.template add_product<false>(weights, keys);
  }

  const Head<T> to = x.out.head(head);
#pragma unroll
  for (int i = 0; i < R; ++i) {
    float sum = sums[i];
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
    const int row = thread_row + i;
    if (row >= rows) continue;
    const std::int64_t query = first + row;
    out.store_row(i, reach[i] > 0 ? 1.0f / sum : 0.0f, to.row(s.q_begin + query), to.dim);
    if (x.lse != nullptr && threadIdx.x % 16 == 0)
      x.lse[s.q_begin * x.lse_at.sequence + head * x.lse_at.head + query * x.lse_at.row] =
          reach[i] > 0 ? (maxima[i] + log2f(sum)) * kLn2 : -INFINITY;
  }
}

template <class T>
void forward(const AttentionArgs& args, const LseLayout& lse) {
  const OpLaunch launch("attention", {&args.q, &args.k, &args.v, &args.out, &args.lse});
  const ForwardOperands<T> operands{.q = heads_of<const T>(args.q),
                                    .k = heads_of<const T>(args.k),
                                    .v = heads_of<const T>(args.v),
                                    .out = heads_of<T>(args.out),
                                    .lse = args.lse.defined() ? args.lse.data<float>() : nullptr,
                                    .lse_at = lse,
                                    .group = args.q.size(1) / args.k.size(1),
                                    .causal = args.causal,
                                    .window = args.window,
                                    .scale = args.scale * kLog2E,
                                    .cap = unscaled_cap(args.soft_cap, args.scale)};
  with_tile_shape(args.q.size(2), [&](auto shape) {
    using Shape = decltype(shape);
    constexpr std::size_t kShared = sizeof(float) * (2 * Shape::kTileFloats + Shape::kScoreFloats);
    for_sequence_tiles(
        args.sequences, Shape::kTile, [](const SequenceRange& s) { return s.q_length; },
        [&](const SequenceTiles& tiles) {
          const dim3 grid(static_cast<unsigned>(tiles.first_tile[tiles.count]), static_cast<unsigned>(args.q.size(1)));
          launch(tiled_attention_kernel<Shape, T>, grid, kTileThreads, kShared, tiles, operands);
        });
  });
}

}  // namespace

void tiled_attention(const AttentionArgs& args, const LseLayout& lse) {
  if (args.q.dtype() == DType::f32)
    forward<float>(args, lse);
  else
    forward<bfloat16>(args, lse);
}

}  // namespace quench::cuda
