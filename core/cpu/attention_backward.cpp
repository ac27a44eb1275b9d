// With P = exp(scale Q K^T - lse) and delta = rowsum(dO * O):
//   dV = P^T dO,  dS = P * (dO V^T - delta),  dQ = scale dS K,  dK = scale dS^T Q.

#include <cmath>

#include "core/cpu/attention_tiles.h"
#include "core/cpu/parallel.h"
#include "core/cpu/vector_math.h"
#include "core/ops/attention.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// The gradients of one kv head are summed over its query heads and query tiles by one thread in a fixed order. When
// there are few kv heads the queries are cut into parts with sums of their own; the number of parts follows from the
// shapes alone, so that the bits do not depend on the threads.
constexpr std::int64_t kWantedItems = 16;
constexpr std::int64_t kMinPartTiles = 4;

struct Scratch {
  float *keys_transposed, *values_transposed, *keys;        // of the whole sequence
  float *queries, *dout, *dqueries, *p, *ds, *lse, *delta;  // of one query tile

  static std::int64_t size(std::int64_t keys, std::int64_t dim, std::int64_t padded) {
    return round_up(keys, kKeyTile) * (2 * dim + padded) + kQueryTile * (3 * padded + 2 * kKeyTile + 2) + 10 * 16;
  }
  Scratch(float* base, std::int64_t max_keys, std::int64_t dim, std::int64_t padded) {
    const std::int64_t rows = round_up(max_keys, kKeyTile);
    Arena arena(base);
    keys_transposed = arena.take(rows * dim);
    values_transposed = arena.take(rows * dim);
    keys = arena.take(rows * padded);
    queries = arena.take(kQueryTile * padded);
    dout = arena.take(kQueryTile * padded);
    dqueries = arena.take(kQueryTile * padded);
    p = arena.take(kQueryTile * kKeyTile);
    ds = arena.take(kQueryTile * kKeyTile);
    lse = arena.take(kQueryTile);
    delta = arena.take(kQueryTile);
  }
};

// P and dS of one row of a tile from the scores in p and dO V^T in ds.
QUENCH_INLINE void row_gradient(float* p, float* ds, std::int64_t visible, float scale, float lse, float delta) {
  const I32 lanes = lane_numbers();
  std::int64_t i = 0;
  for (; i < visible; i += kLanes) {
    F32 probability = exp(fma(load(p + i, FullVector{}), broadcast(scale), broadcast(-lse)));
    F32 gradient = probability * (load(ds + i, FullVector{}) - delta);
    if (i + kLanes > visible) {
      const I32 seen = lanes < static_cast<std::int32_t>(visible - i);
      probability = select(seen, probability, F32{});
      gradient = select(seen, gradient, F32{});
    }
    store(p + i, probability, FullVector{});
    store(ds + i, gradient, FullVector{});
  }
  for (; i < kKeyTile; i += kLanes) {
    store(p + i, F32{}, FullVector{});
    store(ds + i, F32{}, FullVector{});
  }
}

template <class T>
class QueryTile {
 public:
  QueryTile(const AttentionBackwardArgs& args, const SequenceRange& s, const Scratch& scratch, std::int64_t padded)
      : args_(args), s_(s), scratch_(scratch), padded_(padded), dim_(args.q.size(2)) {}

  void run(std::int64_t head, std::int64_t tile, float* dkeys, float* dvalues) {
    first_ = tile * kQueryTile;
    rows_ = std::min(kQueryTile, s_.q_length - first_);
    load_rows(head);
    const std::int64_t keys = visible_keys(s_, args_.causal, first_ + rows_ - 1);
    for (std::int64_t key = 0; key < keys; key += kKeyTile) {
      score_gradients(key);
      key_gradients(key, std::min(kKeyTile, keys - key), dkeys, dvalues);
    }
    unpack_rows(scratch_.dqueries, padded_, args_.scale, HeadView<T>(args_.dq, head), s_.q_begin + first_, rows_, dim_);
  }

 private:
  void load_rows(std::int64_t head) {
    const std::int64_t position = s_.q_begin + first_;
    pack_rows(HeadView<const T>(args_.q, head), position, rows_, dim_, scratch_.queries, padded_);
    pack_rows(HeadView<const T>(args_.dout, head), position, rows_, dim_, scratch_.dout, padded_);
    std::fill(scratch_.dqueries, scratch_.dqueries + rows_ * padded_, 0.0f);
    const float* lse = args_.lse.data<float>() + head * args_.lse.size(1) + position;
    std::copy(lse, lse + rows_, scratch_.lse);
    const HeadView<const T> out(args_.out, head);
    for (std::int64_t r = 0; r < rows_; ++r) {
      const T* row = out.row(position + r);
      F32 sum{};
      for_vectors(dim_, [&](std::int64_t d, auto lanes) {
        sum = fma(load(row + d, lanes), load(scratch_.dout + r * padded_ + d, FullVector{}), sum);
      });
      scratch_.delta[r] = reduce_add(sum);
    }
  }

  std::int64_t reach(std::int64_t row, std::int64_t key) const {
    return std::min(kKeyTile, visible_keys(s_, args_.causal, first_ + row) - key);
  }

  // P and dS of the tile, and its share of dQ.
  void score_gradients(std::int64_t key) {
    for (std::int64_t r = 0; r < rows_; r += kMicroRows) {
      const std::int64_t count = std::min<std::int64_t>(kMicroRows, rows_ - r);
      const std::int64_t columns = reach(r + count - 1, key), vectors = (columns + kLanes - 1) / kLanes;
      float* p = scratch_.p + r * kKeyTile;
      float* ds = scratch_.ds + r * kKeyTile;
      if (columns > 0) {
        MicroGemm product{.a = scratch_.queries + r * padded_,
                          .a_row = padded_,
                          .a_depth = 1,
                          .b = scratch_.keys_transposed + key * dim_,
                          .b_row = kKeyTile,
                          .c = p,
                          .c_row = kKeyTile,
                          .depth = dim_};
        micro_gemm<false>(product, count, vectors);
        product.a = scratch_.dout + r * padded_;
        product.b = scratch_.values_transposed + key * dim_;
        product.c = ds;
        micro_gemm<false>(product, count, vectors);
      }
      for (std::int64_t i = 0; i < count; ++i)
        row_gradient(p + i * kKeyTile, ds + i * kKeyTile, reach(r + i, key), args_.scale, scratch_.lse[r + i],
                     scratch_.delta[r + i]);
      if (columns > 0)
        micro_gemm<true>({.a = ds,
                          .a_row = kKeyTile,
                          .a_depth = 1,
                          .b = scratch_.keys + key * padded_,
                          .b_row = padded_,
                          .c = scratch_.dqueries + r * padded_,
                          .c_row = padded_,
                          .depth = columns},
                         count, padded_ / kLanes);
    }
  }

  // Adds P^T dO and dS^T Q to the gradients of `columns` keys from `key` on.
  void key_gradients(std::int64_t key, std::int64_t columns, float* dkeys, float* dvalues) {
    std::int64_t row = 0;  // the first query that sees any key of the block
    for (std::int64_t c = 0; c < columns; c += kMicroRows) {
      const std::int64_t count = std::min<std::int64_t>(kMicroRows, columns - c);
      while (row < rows_ && reach(row, key) <= c) ++row;
      MicroGemm product{.a = scratch_.p + row * kKeyTile + c,
                        .a_row = 1,
                        .a_depth = kKeyTile,
                        .b = scratch_.dout + row * padded_,
                        .b_row = padded_,
                        .c = dvalues + (key + c) * padded_,
                        .c_row = padded_,
                        .depth = rows_ - row};
      micro_gemm<true>(product, count, padded_ / kLanes);
      product.a = scratch_.ds + row * kKeyTile + c;
      product.b = scratch_.queries + row * padded_;
      product.c = dkeys + (key + c) * padded_;
      micro_gemm<true>(product, count, padded_ / kLanes);
    }
  }

  const AttentionBackwardArgs& args_;
  const SequenceRange& s_;
  const Scratch& scratch_;
  std::int64_t padded_, dim_, first_ = 0, rows_ = 0;
};

// sums[0] += sums[1] + ... + sums[parts - 1], in order.
void add_parts(float* sums, std::int64_t parts, std::int64_t step, std::int64_t size) {
  for (std::int64_t part = 1; part < parts; ++part)
    for_vectors(size, [&](std::int64_t i, auto count) {
      store(sums + i, load(sums + i, count) + load(sums + part * step + i, count), count);
    });
}

template <class T>
void backward(const AttentionBackwardArgs& args) {
  const std::int64_t heads = args.q.size(1), kv_heads = args.k.size(1), group = heads / kv_heads;
  const std::int64_t dim = args.q.size(2), padded = round_up(dim, kLanes);
  const auto sequences = static_cast<std::int64_t>(args.sequences.size());
  std::int64_t queries = 0, keys = 0, max_queries = 0, max_keys = 0, work = 0;
  for (const SequenceRange& s : args.sequences) {
    queries += s.q_length;
    keys += s.k_length;
    max_queries = std::max(max_queries, s.q_length);
    max_keys = std::max(max_keys, s.k_length);
    work += s.q_length * s.k_length * heads;
  }
  if (queries < args.q.size(0)) zero_rows<T>(args.dq);
  if (keys < args.k.size(0)) {
    zero_rows<T>(args.dk);
    zero_rows<T>(args.dv);
  }
  const std::int64_t pairs = sequences * kv_heads;
  if (pairs == 0) return;
  const std::int64_t max_tiles = (max_queries + kQueryTile - 1) / kQueryTile;
  const std::int64_t parts = std::clamp<std::int64_t>((kWantedItems + pairs - 1) / pairs, 1,
                                                      std::max<std::int64_t>(1, max_tiles / kMinPartTiles));

  // One part: its sums are written out at once, so they can live in the thread's scratch.
  const std::int64_t threads = omp_get_max_threads();
  const std::int64_t scratch_size = Scratch::size(max_keys, dim, padded), sums_size = 2 * max_keys * padded;
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor scratch_memory = Tensor::empty({threads, scratch_size}, DType::f32);
  const Tensor sums_memory = Tensor::empty({parts == 1 ? threads : pairs * parts, round_up(sums_size, 16)}, DType::f32);
  float* scratch_base = scratch_memory.data<float>();
  float* sums_base = sums_memory.data<float>();
  const std::int64_t sums_step = sums_memory.size(1);

  const auto write_out = [&](const SequenceRange& s, std::int64_t kv_head, const float* sums) {
    unpack_rows(sums, padded, args.scale, HeadView<T>(args.dk, kv_head), s.k_begin, s.k_length, dim);
    unpack_rows(sums + max_keys * padded, padded, 1.0f, HeadView<T>(args.dv, kv_head), s.k_begin, s.k_length, dim);
  };
  parallel_items(pairs * parts, work, [&](std::int64_t item, int thread) {
    const std::int64_t pair = item / parts, part = parts - 1 - item % parts, kv_head = pair % kv_heads;
    const SequenceRange& s = args.sequences[static_cast<std::size_t>(pair / kv_heads)];
    const Scratch scratch(scratch_base + thread * scratch_size, max_keys, dim, padded);
    float* dkeys = sums_base + (parts == 1 ? thread : pair * parts + part) * sums_step;
    float* dvalues = dkeys + max_keys * padded;
    std::fill(dkeys, dkeys + sums_size, 0.0f);
    const HeadView<const T> k(args.k, kv_head), v(args.v, kv_head);
    pack_transposed(k, s.k_begin, s.k_length, dim, scratch.keys_transposed);
    pack_transposed(v, s.k_begin, s.k_length, dim, scratch.values_transposed);
    pack_rows(k, s.k_begin, s.k_length, dim, scratch.keys, padded);
    const std::int64_t tiles = (s.q_length + kQueryTile - 1) / kQueryTile;
    QueryTile<T> query_tile(args, s, scratch, padded);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for (std::int64_t tile = tiles * part / parts; tile < tiles * (part + 1) / parts; ++tile)
        query_tile.run(head, tile, dkeys, dvalues);
    if (parts == 1) write_out(s, kv_head, dkeys);
  });
  if (parts == 1) return;
  parallel_items(pairs, work, [&](std::int64_t pair, int) {
    float* sums = sums_base + pair * parts * sums_step;
    add_parts(sums, parts, sums_step, sums_size);
    write_out(args.sequences[static_cast<std::size_t>(pair / kv_heads)], pair % kv_heads, sums);
  });
}

void attention_backward_kernel(const AttentionBackwardArgs& args) {
  dispatch<float, bfloat16>(args.q.dtype(), "attention_backward", [&]<class T>() { backward<T>(args); });
}

QUENCH_CPU_KERNEL(attention_backward_slot, attention_backward_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
