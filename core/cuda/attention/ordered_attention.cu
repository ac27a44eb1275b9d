// Attention in the order of ordered_block.cuh for training and prefill: a CTA has 128 queries of a head, a warp 16 of
// them; two blocks of keys and values are on their way to shared memory while one is used. Bound by MMAs and
// exponentials.

#include "core/cuda/attention/ordered_attention.h"

#include "core/cuda/attention/attention_tile.cuh"
#include "core/cuda/attention/ordered_block.cuh"
#include "core/cuda/common/launch.h"

namespace quench::cuda {
namespace {

constexpr int kQueries = 128;
// Fragments of 16 queries of a warp. More would share reads of shared memory, at half the warps: slower.
constexpr int kTiles = 1, kThreads = 32 * kQueries / (16 * kTiles);
constexpr int kStages = 3;

struct OrderedOperands {
  Heads<const bfloat16> q, k, v;
  Heads<bfloat16> out;
  float* lse;  // optional
  LseLayout lse_at;
  std::int64_t group;  // query heads per KV head
  bool causal;
  std::int64_t window;
  OrderedScale scale;
};

// Rows [first, first + kRows) of a head, zeros past `count` rows and past the head.
template <class Shape, int kRows>
__device__ __forceinline__ void load_rows(std::uint32_t to, const Head<const bfloat16>& from, std::int64_t first,
                                          std::int64_t count) {
#pragma unroll
  for (int i = 0; i < kRows * Shape::kUnits / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x), row = at / Shape::kUnits, unit = at % Shape::kUnits;
    const bool valid = row < count && unit * 8 < from.dim;
    cp_async_16(to + Shape::offset(row, unit), valid ? from.row(first + row) + unit * 8 : from.base, valid);
  }
}

// Output of a warp's fragments.
template <class Shape>
struct OrderedOutput {
  OrderedTotal totals[kTiles][2];
  float values[kTiles][Shape::kUnits][4] = {};

  __device__ __forceinline__ void add(const OrderedWeights (&weights)[kTiles], std::uint32_t block_values) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) totals[m][r].add(weights[m].maximum[r], weights[m].sum[r]);
#pragma unroll
    for (int n = 0; n < Shape::kSteps; ++n) {
      float sums[kTiles][2][4];
      ordered_values<Shape>(sums, weights, block_values, n);
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            values[m][2 * n + h][i] = totals[m][i / 2].merged(values[m][2 * n + h][i], sums[m][h][i]);
    }
  }
};

template <class Shape>
__global__ __launch_bounds__(kThreads, Shape::kDim <= 64 ? 2 : 1) void ordered_attention_kernel(
    const __grid_constant__ SequenceTiles tiles, const OrderedOperands x) {
  extern __shared__ uint4 shared[];
  const auto queries = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const auto keys_of = [&](std::int64_t block) {
    return queries + Shape::kBlockBytes * (2 + 2 * static_cast<std::uint32_t>(block % kStages));
  };

  // Longest tiles (late queries) first.
  const auto [s, tile] = find_tile(tiles, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  const std::int64_t head = blockIdx.y, first = tile * kQueries, last = min(first + kQueries, s.q_length) - 1;
  const Head<const bfloat16> k = x.k.head(head / x.group), v = x.v.head(head / x.group);
  const std::int64_t first_block = first_visible_key(s, x.window, first) / kOrderedKeys,
                     end_block = (visible_keys(s, x.causal, last) + kOrderedKeys - 1) / kOrderedKeys;
  const auto load_block = [&](std::int64_t block) {
    if (block < end_block) {
      const std::int64_t key = block * kOrderedKeys, count = s.k_length - key;
      load_rows<Shape, kOrderedKeys>(keys_of(block), k, s.k_begin + key, count);
      load_rows<Shape, kOrderedKeys>(keys_of(block) + Shape::kBlockBytes, v, s.k_begin + key, count);
    }
    cp_async_commit();
  };
  load_rows<Shape, kQueries>(queries, x.q.head(head), s.q_begin + first, last + 1 - first);
  load_block(first_block);
  load_block(first_block + 1);

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t warp_query = first + warp * 16 * kTiles;
  const auto query_of = [&](int m, int r) { return warp_query + 16 * m + lane / 4 + 8 * r; };
  // Blocks that some query, and every query, of the warp sees.
  const std::int64_t warp_last = min(warp_query + 16 * kTiles - 1, last),
                     warp_begin = first_visible_key(s, x.window, min(warp_query, last)),
                     warp_end = visible_keys(s, x.causal, warp_last),
                     whole_begin = first_visible_key(s, x.window, warp_last),
                     whole_end = visible_keys(s, x.causal, min(warp_query, last));
  OrderedOutput<Shape> out;
  OrderedQueries<Shape> q[kTiles];
  for (std::int64_t block = first_block; block < end_block; ++block) {
    cp_async_wait<1>();
    __syncthreads();  // all warps have used the block before
    load_block(block + 2);
    if (block == first_block)
#pragma unroll
      for (int m = 0; m < kTiles; ++m) q[m].load(queries, (warp * kTiles + m) * 16);
    const std::int64_t key = block * kOrderedKeys;
    if (key < warp_end && key + kOrderedKeys > warp_begin) {
      OrderedVisible visible[kTiles];
      OrderedWeights weights[kTiles];
      if (key >= whole_begin && key + kOrderedKeys <= whole_end) {
        ordered_weights<false>(weights, q, keys_of(block), visible, x.scale);
      } else {
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const std::int64_t query = min(query_of(m, r), last);
            visible[m].begin[r] = static_cast<int>(first_visible_key(s, x.window, query) - key);
            visible[m].end[r] = static_cast<int>(visible_keys(s, x.causal, query) - key);
          }
        ordered_weights<true>(weights, q, keys_of(block), visible, x.scale);
      }
      out.add(weights, keys_of(block) + Shape::kBlockBytes);
    }
  }
  cp_async_wait<0>();

  const Head<bfloat16> to = x.out.head(head);
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::int64_t query = query_of(m, r);
      if (query > last) continue;
      const OrderedTotal& total = out.totals[m][r];
      const float factor = total.factor();
      bfloat16* row = to.row(s.q_begin + query);
#pragma unroll
      for (int n = 0; n < Shape::kUnits; ++n) {
        const int d = 8 * n + lane % 4 * 2;
        if (d < to.dim)
          *reinterpret_cast<std::uint32_t*>(row + d) =
              pack_pair<bfloat16>(out.values[m][n][2 * r] * factor, out.values[m][n][2 * r + 1] * factor);
      }
      if (x.lse != nullptr && lane % 4 == 0)
        x.lse[s.q_begin * x.lse_at.sequence + head * x.lse_at.head + query * x.lse_at.row] = total.lse();
    }
}

template <int kDim>
void launch_ordered(const OpLaunch& launch, const AttentionArgs& args, const OrderedOperands& operands) {
  using Shape = OrderedShape<kDim>;
  for_sequence_tiles(
      args.sequences, kQueries, [](const SequenceRange& s) { return s.q_length; },
      [&](const SequenceTiles& tiles) {
        const dim3 grid(static_cast<unsigned>(tiles.first_tile[tiles.count]), static_cast<unsigned>(args.q.size(1)));
        launch(ordered_attention_kernel<Shape>, grid, kThreads, std::size_t{2 + 2 * kStages} * Shape::kBlockBytes,
               tiles, operands);
      });
}

}  // namespace

bool ordered_attention_takes(const AttentionArgs& args) {
  if (args.q.dtype() != DType::bf16 || args.q.size(2) > 128 || args.q.size(2) % 8 != 0 || args.last_key.defined())
    return false;
  return heads_of<const bfloat16>(args.q).wide && heads_of<const bfloat16>(args.k).wide &&
         heads_of<const bfloat16>(args.v).wide;
}

void ordered_attention(const AttentionArgs& args, const LseLayout& lse) {
  const OpLaunch launch("attention", {&args.q, &args.k, &args.v, &args.out, &args.lse});
  const OrderedOperands operands{.q = heads_of<const bfloat16>(args.q),
                                 .k = heads_of<const bfloat16>(args.k),
                                 .v = heads_of<const bfloat16>(args.v),
                                 .out = heads_of<bfloat16>(args.out),
                                 .lse = args.lse.defined() ? args.lse.data<float>() : nullptr,
                                 .lse_at = lse,
                                 .group = args.q.size(1) / args.k.size(1),
                                 .causal = args.causal,
                                 .window = args.window,
                                 .scale = {args.scale * kLog2E, unscaled_cap(args.soft_cap, args.scale)}};
  if (args.q.size(2) <= 64)
    launch_ordered<64>(launch, args, operands);
  else
    launch_ordered<128>(launch, args, operands);
}

}  // namespace quench::cuda
