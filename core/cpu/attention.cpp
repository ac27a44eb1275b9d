#include "core/ops/attention.h"

#include <cmath>

#include "core/cpu/attention_tiles.h"
#include "core/cpu/parallel.h"
#include "core/cpu/vector_math.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

struct Scratch {
  float *keys, *values, *queries, *out, *scores, *maxima, *sums;

  static std::int64_t size(std::int64_t keys, std::int64_t dim, std::int64_t padded) {
    return round_up(keys, kKeyTile) * (dim + padded) + kQueryTile * (dim + padded + 2 * kLanes) +
           kMicroRows * kKeyTile + 7 * 16;
  }
  Scratch(float* base, std::int64_t max_keys, std::int64_t dim, std::int64_t padded) {
    Arena arena(base);
    keys = arena.take(round_up(max_keys, kKeyTile) * dim);
    values = arena.take(round_up(max_keys, kKeyTile) * padded);
    queries = arena.take(kQueryTile * dim);
    out = arena.take(kQueryTile * padded);
    scores = arena.take(kMicroRows * kKeyTile);
    maxima = arena.take(kQueryTile);
    sums = arena.take(kQueryTile * kLanes);
  }
};

// Folds one row of scores over `visible` keys into the running softmax of the row: scores become exp(score - maximum),
// zero up to `written` lanes; `sum` holds one partial sum a lane.
QUENCH_INLINE void softmax_step(float* scores, std::int64_t visible, std::int64_t written, float& maximum, float* sum,
                                float* out, std::int64_t padded) {
  const F32 masked = broadcast(-INFINITY);
  const I32 lanes = lane_numbers();
  F32 best = broadcast(maximum);
  for (std::int64_t i = 0; i < written; i += kLanes) {
    F32 s = load(scores + i, FullVector{});
    if (i + kLanes > visible) {
      s = select(lanes < static_cast<std::int32_t>(visible - i), s, masked);
      store(scores + i, s, FullVector{});
    }
    best = max(s, best);
  }
  const float next = reduce_max(best);
  F32 total = load(sum, FullVector{});
  if (next != maximum) {
    const F32 decay = exp(broadcast(maximum - next));
    total *= decay;
    for (std::int64_t d = 0; d < padded; d += kLanes) store(out + d, load(out + d, FullVector{}) * decay, FullVector{});
    maximum = next;
  }
  for (std::int64_t i = 0; i < written; i += kLanes) {
    F32 p = exp(load(scores + i, FullVector{}) - next);
    if (i + kLanes > visible) p = select(lanes < static_cast<std::int32_t>(visible - i), p, F32{});
    store(scores + i, p, FullVector{});
    total += p;
  }
  store(sum, total, FullVector{});
}

template <class T>
void query_tile(const AttentionArgs& args, const SequenceRange& s, std::int64_t head, std::int64_t tile,
                const Scratch& scratch, std::int64_t padded) {
  const std::int64_t dim = args.q.size(2), first = tile * kQueryTile, rows = std::min(kQueryTile, s.q_length - first);
  const HeadView<const T> q(args.q, head);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = q.row(s.q_begin + first + r);
    for_vectors(dim, [&](std::int64_t d, auto lanes) {
      store(scratch.queries + r * dim + d, load(row + d, lanes) * args.scale, lanes);
    });
  }
  std::fill(scratch.out, scratch.out + rows * padded, 0.0f);
  std::fill(scratch.maxima, scratch.maxima + rows, -INFINITY);
  std::fill(scratch.sums, scratch.sums + rows * kLanes, 0.0f);

  const std::int64_t keys = visible_keys(s, args.causal, first + rows - 1);
  for (std::int64_t key = 0; key < keys; key += kKeyTile) {
    for (std::int64_t r = 0; r < rows; r += kMicroRows) {
      const std::int64_t count = std::min<std::int64_t>(kMicroRows, rows - r);
      const std::int64_t reach = std::min(kKeyTile, visible_keys(s, args.causal, first + r + count - 1) - key);
      if (reach <= 0) continue;
      const std::int64_t vectors = (reach + kLanes - 1) / kLanes;
      micro_gemm<false>({.a = scratch.queries + r * dim,
                         .a_row = dim,
                         .a_depth = 1,
                         .b = scratch.keys + key * dim,
                         .b_row = kKeyTile,
                         .c = scratch.scores,
                         .c_row = kKeyTile,
                         .depth = dim},
                        count, vectors);
      for (std::int64_t i = 0; i < count; ++i) {
        float* scores = scratch.scores + i * kKeyTile;
        const std::int64_t visible = std::min(kKeyTile, visible_keys(s, args.causal, first + r + i) - key);
        if (visible > 0)
          softmax_step(scores, visible, vectors * kLanes, scratch.maxima[r + i], scratch.sums + (r + i) * kLanes,
                       scratch.out + (r + i) * padded, padded);
        else
          std::fill(scores, scores + vectors * kLanes, 0.0f);
      }
      micro_gemm<true>({.a = scratch.scores,
                        .a_row = kKeyTile,
                        .a_depth = 1,
                        .b = scratch.values + key * padded,
                        .b_row = padded,
                        .c = scratch.out + r * padded,
                        .c_row = padded,
                        .depth = reach},
                       count, padded / kLanes);
    }
  }

  const HeadView<T> out(args.out, head);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t position = s.q_begin + first + r;
    const bool any = visible_keys(s, args.causal, first + r) > 0;
    const float sum = reduce_add(load(scratch.sums + r * kLanes, FullVector{}));
    unpack_rows(scratch.out + r * padded, padded, any ? 1.0f / sum : 0.0f, out, position, 1, dim);
    if (args.lse.defined())
      args.lse.data<float>()[head * args.lse.size(1) + position] = any ? scratch.maxima[r] + std::log(sum) : -INFINITY;
  }
}

template <class T>
void forward(const AttentionArgs& args) {
  const std::int64_t heads = args.q.size(1), kv_heads = args.k.size(1), group = heads / kv_heads;
  const std::int64_t dim = args.q.size(2), padded = round_up(dim, kLanes);
  std::int64_t covered = 0, max_keys = 0, work = 0, items = 0;
  for (const SequenceRange& s : args.sequences) {
    covered += s.q_length;
    max_keys = std::max(max_keys, s.k_length);
    work += s.q_length * s.k_length * heads;
    items += s.q_length > 0 ? kv_heads : 0;
  }
  if (covered < args.q.size(0)) {
    zero_rows<T>(args.out);
    if (args.lse.defined()) std::fill_n(args.lse.data<float>(), args.lse.numel(), -INFINITY);
  }
  if (items == 0) return;
  const std::int64_t threads = omp_get_max_threads();
  // Few heads for many threads: cut the queries, at the price of packing the keys once more for each cut.
  const std::int64_t cuts = std::max<std::int64_t>(1, 4 * threads / items);

  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t scratch_size = Scratch::size(max_keys, dim, padded);
  const Tensor scratch_memory = Tensor::empty({threads, scratch_size}, DType::f32);
  float* scratch_base = scratch_memory.data<float>();

  const auto sequences = static_cast<std::int64_t>(args.sequences.size());
  parallel_items(sequences * kv_heads * cuts, work, [&](std::int64_t item, int thread) {
    // Later queries see more keys: start with them.
    const std::int64_t cut = cuts - 1 - item / (sequences * kv_heads), kv_head = item % kv_heads;
    const SequenceRange& s = args.sequences[static_cast<std::size_t>(item / kv_heads % sequences)];
    const std::int64_t tiles = (s.q_length + kQueryTile - 1) / kQueryTile;
    const std::int64_t tile_begin = tiles * cut / cuts, tile_end = tiles * (cut + 1) / cuts;
    if (tile_begin == tile_end) return;
    const Scratch scratch(scratch_base + thread * scratch_size, max_keys, dim, padded);
    const std::int64_t keys = visible_keys(s, args.causal, std::min(tile_end * kQueryTile, s.q_length) - 1);
    pack_transposed(HeadView<const T>(args.k, kv_head), s.k_begin, keys, dim, scratch.keys);
    pack_rows(HeadView<const T>(args.v, kv_head), s.k_begin, keys, dim, scratch.values, padded);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for (std::int64_t tile = tile_begin; tile < tile_end; ++tile) query_tile<T>(args, s, head, tile, scratch, padded);
  });
}

void attention_kernel(const AttentionArgs& args) {
  dispatch<float, bfloat16>(args.q.dtype(), "attention", [&]<class T>() { forward<T>(args); });
}

QUENCH_CPU_KERNEL(attention_slot, attention_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
