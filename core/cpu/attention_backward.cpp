// Attention backward. With P = exp(scale Q K^T - lse) and delta = rowsum(dO * O):
//   dV = P^T dO,  dS = P * (dO V^T - delta),  dQ = scale dS K,  dK = scale dS^T Q.

#include <cmath>
#include <numbers>

#include "core/cpu/attention_tiles.h"
#include "core/cpu/parallel.h"
#include "core/cpu/vector_math.h"
#include "core/ops/attention.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// One thread sums a KV head's gradients over query heads and tiles in order. With few KV heads, queries are split into
// parts with separate sums; the part count depends on the shapes alone.
constexpr std::int64_t kWantedItems = 16;
constexpr std::int64_t kMinPartTiles = 4;

template <class Operand>
struct BackwardScratch {
  // Whole sequence.
  Operand *keys_transposed, *values_transposed, *keys;
  // One query tile. _depth: K axis along the queries; the same arrays for f32.
  Operand *queries, *queries_depth, *dout, *dout_depth, *ds, *ds_depth, *p_depth;
  float *scores, *dscores, *dqueries, *lse, *delta;

  static std::int64_t size(std::int64_t max_keys, const HeadLayout<Operand>& layout) {
    return round_up(max_keys, kKeyTile) * (2 * layout.depth + layout.padded) +
           kQueryTile * (2 * layout.row() + 3 * layout.padded + 5 * kKeyTile + 2) + 15 * 16;
  }
  BackwardScratch(float* base, std::int64_t max_keys, const HeadLayout<Operand>& layout) {
    const std::int64_t rows = round_up(max_keys, kKeyTile);
    Arena arena(base);
    keys_transposed = arena.take<Operand>(rows * layout.depth);
    values_transposed = arena.take<Operand>(rows * layout.depth);
    keys = arena.take<Operand>(rows * layout.padded);
    queries = arena.take<Operand>(kQueryTile * layout.row());
    dout = arena.take<Operand>(kQueryTile * layout.row());
    scores = arena.take<float>(kQueryTile * kKeyTile);
    dscores = arena.take<float>(kQueryTile * kKeyTile);
    if constexpr (kPack<Operand> == 1) {
      queries_depth = queries;
      dout_depth = dout;
      ds = ds_depth = dscores;
      p_depth = scores;
    } else {
      queries_depth = arena.take<Operand>(kQueryTile * layout.padded);
      dout_depth = arena.take<Operand>(kQueryTile * layout.padded);
      ds = arena.take<Operand>(kQueryTile * kKeyTile);
      ds_depth = arena.take<Operand>(kQueryTile * kKeyTile);
      p_depth = arena.take<Operand>(kQueryTile * kKeyTile);
    }
    dqueries = arena.take<float>(kQueryTile * layout.padded);
    lse = arena.take<float>(kQueryTile);
    delta = arena.take<float>(kQueryTile);
  }
};

// One row, visible keys [hidden, visible), from scores in p and dO V^T in ds; base 2. cap: unscaled_cap(), 0: none.
QUENCH_INLINE void row_gradient(float* p, float* ds, std::int64_t hidden, std::int64_t visible, float scale, float lse,
                                float delta, float cap) {
  const I32 lanes = lane_numbers();
  std::int64_t i = 0;
  for (; i < visible; i += kLanes) {
    F32 score = load(p + i, FullVector{}), slope = broadcast(1.0f);
    if (cap > 0) {
      const F32 bounded = tanh(score / cap);
      score = cap * bounded;
      slope = 1.0f - bounded * bounded;
    }
    F32 probability = exp2(fma(score, broadcast(scale), broadcast(-lse)));
    F32 gradient = probability * (load(ds + i, FullVector{}) - delta);
    if (cap > 0) gradient *= slope;
    if (i + kLanes > visible) {
      const I32 seen = lanes < static_cast<std::int32_t>(visible - i);
      probability = select(seen, probability, F32{});
      gradient = select(seen, gradient, F32{});
    }
    if (i < hidden) {
      const I32 unseen = lanes < static_cast<std::int32_t>(hidden - i);
      probability = select(unseen, F32{}, probability);
      gradient = select(unseen, F32{}, gradient);
    }
    store(p + i, probability, FullVector{});
    store(ds + i, gradient, FullVector{});
  }
  for (; i < kKeyTile; i += kLanes) {
    store(p + i, F32{}, FullVector{});
    store(ds + i, F32{}, FullVector{});
  }
}

// Two tile rows, in bf16.
QUENCH_INLINE void interleave_rows(const float* low, const float* high, Bf16Pair* to) {
  for (std::int64_t i = 0; i < kKeyTile; i += kLanes) {
    const U32 pair = (as_u32(round_to<bfloat16>(load(low + i, FullVector{}))) >> 16) |
                     as_u32(round_to<bfloat16>(load(high + i, FullVector{})));
    std::memcpy(to + i, &pair, sizeof pair);
  }
}

template <class T, class Operand>
class BackwardQueryTile {
 public:
  BackwardQueryTile(const AttentionBackwardArgs& args, const SequenceRange& s, const BackwardScratch<Operand>& scratch,
                    const HeadLayout<Operand>& layout)
      : args_(args), s_(s), scratch_(scratch), layout_(layout), scale_(args.scale * std::numbers::log2e_v<float>) {}

  void run(std::int64_t head, std::int64_t tile, float* dkeys, float* dvalues) {
    first_ = tile * kQueryTile;
    rows_ = std::min(kQueryTile, s_.q_length - first_);
    load_rows(head);
    const std::int64_t keys = visible_keys(s_, args_.causal, first_ + rows_ - 1);
    const std::int64_t first_key = first_visible_key(s_, args_.window, first_) / kKeyTile * kKeyTile;
    for (std::int64_t key = first_key; key < keys; key += kKeyTile) {
      for (std::int64_t row = 0; row < rows_; row += kMicroRows) score_gradients(row, key);
      key_gradients(key, std::min(kKeyTile, keys - key), dkeys, dvalues);
    }
    unpack_rows(scratch_.dqueries, layout_.padded, args_.scale, HeadView<T>(args_.dq, head), s_.q_begin + first_, rows_,
                layout_.dim);
  }

 private:
  static constexpr std::int64_t kPairs = kPack<Operand>;

  void load_rows(std::int64_t head) {
    const std::int64_t position = s_.q_begin + first_;
    const HeadView<const T> q(args_.q, head), dout(args_.dout, head), out(args_.out, head);
    pack_rows(q, position, rows_, layout_, scratch_.queries);
    pack_rows(dout, position, rows_, layout_, scratch_.dout);
    if constexpr (kPairs > 1) {
      pack_depth_rows(q, position, rows_, layout_, scratch_.queries_depth);
      pack_depth_rows(dout, position, rows_, layout_, scratch_.dout_depth);
    }
    std::fill(scratch_.dqueries, scratch_.dqueries + rows_ * layout_.padded, 0.0f);
    const float* lse = args_.lse.data<float>() + head * args_.lse.size(1) + position;
    for (std::int64_t r = 0; r < rows_; ++r) {
      scratch_.lse[r] = lse[r] * std::numbers::log2e_v<float>;
      const T* a = out.row(position + r);
      const T* b = dout.row(position + r);
      F32 sum{};
      for_vectors(layout_.dim,
                  [&](std::int64_t d, auto lanes) { sum = fma(load(a + d, lanes), load(b + d, lanes), sum); });
      scratch_.delta[r] = reduce_add(sum);
    }
  }

  std::int64_t reach(std::int64_t row, std::int64_t key) const {
    return std::min(kKeyTile, visible_keys(s_, args_.causal, first_ + row) - key);
  }
  std::int64_t hidden(std::int64_t row, std::int64_t key) const {
    return std::max<std::int64_t>(0, first_visible_key(s_, args_.window, first_ + row) - key);
  }

  void score_gradients(std::int64_t row, std::int64_t key) {
    const std::int64_t count = std::min<std::int64_t>(kMicroRows, rows_ - row);
    const std::int64_t columns = hidden(row, key) < kKeyTile ? reach(row + count - 1, key) : 0;
    float* p = scratch_.scores + row * kKeyTile;
    float* ds = scratch_.dscores + row * kKeyTile;
    if (columns > 0) {
      MicroGemm<Operand> product{.a = scratch_.queries + row * layout_.row(),
                                 .a_row = layout_.row(),
                                 .a_depth = 1,
                                 .b = scratch_.keys_transposed + key * layout_.depth,
                                 .b_row = kKeyTile,
                                 .c = p,
                                 .c_row = kKeyTile,
                                 .depth = layout_.depth};
      micro_gemm<false>(product, count, (columns + kLanes - 1) / kLanes);
      product.a = scratch_.dout + row * layout_.row();
      product.b = scratch_.values_transposed + key * layout_.depth;
      product.c = ds;
      micro_gemm<false>(product, count, (columns + kLanes - 1) / kLanes);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t unseen = hidden(row + i, key), visible = reach(row + i, key);
      row_gradient(p + i * kKeyTile, ds + i * kKeyTile, unseen, visible > unseen ? visible : 0, scale_,
                   scratch_.lse[row + i], scratch_.delta[row + i], unscaled_cap(args_.soft_cap, args_.scale));
    }
    if constexpr (kPairs > 1) round_block(row, count);
    if (columns > 0)
      micro_gemm<true>(MicroGemm<Operand>{.a = scratch_.ds + row * (kKeyTile / kPairs),
                                          .a_row = kKeyTile / kPairs,
                                          .a_depth = 1,
                                          .b = scratch_.keys + key / kPairs * layout_.padded,
                                          .b_row = layout_.padded,
                                          .c = scratch_.dqueries + row * layout_.padded,
                                          .c_row = layout_.padded,
                                          .depth = round_up(columns, kPairs) / kPairs},
                       count, layout_.padded / kLanes);
  }

  // Whole pairs of rows; an odd last row is paired with zeros.
  void round_block(std::int64_t row, std::int64_t count) {
    float* p = scratch_.scores + row * kKeyTile;
    float* ds = scratch_.dscores + row * kKeyTile;
    if (count % 2 != 0) {
      std::fill_n(p + count * kKeyTile, kKeyTile, 0.0f);
      std::fill_n(ds + count * kKeyTile, kKeyTile, 0.0f);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      auto* rounded = reinterpret_cast<bfloat16*>(scratch_.ds + (row + i) * (kKeyTile / 2));
      for (std::int64_t j = 0; j < kKeyTile; j += kLanes)
        store(rounded + j, load(ds + i * kKeyTile + j, FullVector{}), FullVector{});
    }
    for (std::int64_t i = 0; i < count; i += 2) {
      const std::int64_t at = (row + i) / 2 * kKeyTile;
      interleave_rows(p + i * kKeyTile, p + (i + 1) * kKeyTile, pairs(scratch_.p_depth) + at);
      interleave_rows(ds + i * kKeyTile, ds + (i + 1) * kKeyTile, pairs(scratch_.ds_depth) + at);
    }
  }
  static Bf16Pair* pairs(Operand* p) { return reinterpret_cast<Bf16Pair*>(p); }

  void key_gradients(std::int64_t key, std::int64_t columns, float* dkeys, float* dvalues) {
    std::int64_t row = 0;  // first with a visible key in the block
    for (std::int64_t c = 0; c < columns; c += kMicroRows) {
      const std::int64_t count = std::min<std::int64_t>(kMicroRows, columns - c);
      while (row < rows_ && reach(row, key) <= c) ++row;
      const std::int64_t depth_begin = row / kPairs;
      MicroGemm<Operand> product{.a = scratch_.p_depth + depth_begin * kKeyTile + c,
                                 .a_row = 1,
                                 .a_depth = kKeyTile,
                                 .b = scratch_.dout_depth + depth_begin * layout_.padded,
                                 .b_row = layout_.padded,
                                 .c = dvalues + (key + c) * layout_.padded,
                                 .c_row = layout_.padded,
                                 .depth = round_up(rows_, kPairs) / kPairs - depth_begin};
      micro_gemm<true>(product, count, layout_.padded / kLanes);
      product.a = scratch_.ds_depth + depth_begin * kKeyTile + c;
      product.b = scratch_.queries_depth + depth_begin * layout_.padded;
      product.c = dkeys + (key + c) * layout_.padded;
      micro_gemm<true>(product, count, layout_.padded / kLanes);
    }
  }

  const AttentionBackwardArgs& args_;
  const SequenceRange& s_;
  const BackwardScratch<Operand>& scratch_;
  const HeadLayout<Operand>& layout_;
  float scale_;
  std::int64_t first_ = 0, rows_ = 0;
};

void add_parts(float* sums, std::int64_t parts, std::int64_t step, std::int64_t size) {
  for (std::int64_t part = 1; part < parts; ++part)
    for_vectors(size, [&](std::int64_t i, auto count) {
      store(sums + i, load(sums + i, count) + load(sums + part * step + i, count), count);
    });
}

template <class T, class Operand>
void backward(const AttentionBackwardArgs& args) {
  const std::int64_t heads = args.q.size(1), kv_heads = args.k.size(1), group = heads / kv_heads;
  const HeadLayout<Operand> layout(args.q.size(2));
  const auto sequences = static_cast<std::int64_t>(args.sequences.size());
  std::int64_t queries = 0, keys = 0, max_queries = 0, max_keys = 0, work = 0;
  for (const SequenceRange& s : args.sequences) {
    queries += s.q_length;
    keys += s.k_length;
    max_queries = std::max(max_queries, s.q_length);
    max_keys = std::max(max_keys, s.k_length);
    work += s.q_length * s.k_length * heads * args.q.size(2);
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

  // One part: sums stay in scratch.
  const std::int64_t threads = omp_get_max_threads(), half = max_keys * layout.padded, sums_size = 2 * half;
  const std::int64_t scratch_size = round_up(BackwardScratch<Operand>::size(max_keys, layout), 16);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor scratch_memory = Tensor::empty({threads, scratch_size}, DType::f32);
  const Tensor sums_memory = Tensor::empty({parts == 1 ? threads : pairs * parts, round_up(sums_size, 16)}, DType::f32);
  float* scratch_base = scratch_memory.data<float>();
  float* sums_base = sums_memory.data<float>();
  const std::int64_t sums_step = sums_memory.size(1);

  const auto write_out = [&](const SequenceRange& s, std::int64_t kv_head, const float* sums) {
    unpack_rows(sums, layout.padded, args.scale, HeadView<T>(args.dk, kv_head), s.k_begin, s.k_length, layout.dim);
    unpack_rows(sums + half, layout.padded, 1.0f, HeadView<T>(args.dv, kv_head), s.k_begin, s.k_length, layout.dim);
  };
  parallel_items(pairs * parts, work, [&](std::int64_t item, int thread) {
    const std::int64_t pair = item / parts, part = parts - 1 - item % parts, kv_head = pair % kv_heads;
    const SequenceRange& s = args.sequences[static_cast<std::size_t>(pair / kv_heads)];
    const BackwardScratch<Operand> scratch(scratch_base + thread * scratch_size, max_keys, layout);
    float* dkeys = sums_base + (parts == 1 ? thread : pair * parts + part) * sums_step;
    std::fill(dkeys, dkeys + sums_size, 0.0f);
    const HeadView<const T> k(args.k, kv_head), v(args.v, kv_head);
    pack_transposed(k, s.k_begin, s.k_length, layout, scratch.keys_transposed);
    pack_transposed(v, s.k_begin, s.k_length, layout, scratch.values_transposed);
    pack_depth_rows(k, s.k_begin, s.k_length, layout, scratch.keys);
    const std::int64_t tiles = (s.q_length + kQueryTile - 1) / kQueryTile;
    BackwardQueryTile<T, Operand> query_tile(args, s, scratch, layout);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for (std::int64_t tile = tiles * part / parts; tile < tiles * (part + 1) / parts; ++tile)
        query_tile.run(head, tile, dkeys, dkeys + half);
    if (parts == 1) write_out(s, kv_head, dkeys);
  });
  if (parts == 1) return;
  parallel_items(pairs, work, [&](std::int64_t pair, int) {
    float* sums = sums_base + pair * parts * sums_step;
    add_parts(sums, parts, sums_step, sums_size);
    write_out(args.sequences[static_cast<std::size_t>(pair / kv_heads)], pair % kv_heads, sums);
  });
}

// dsink = -sum over rows of exp(sink - lse) (dO . O). Rows without a visible key have no weights.
template <class T>
void sink_gradients(const AttentionBackwardArgs& args) {
  const std::int64_t heads = args.q.size(1), dim = args.q.size(2);
  parallel_items(heads, args.out.numel(), [&](std::int64_t head, int) {
    const HeadView<const T> out(args.out, head), dout(args.dout, head);
    const float* lse = args.lse.data<float>() + head * args.lse.size(1);
    const float sink = args.sinks.data<float>()[head];
    double total = 0;
    for (const SequenceRange& s : args.sequences)
      for (std::int64_t row = s.q_begin; row < s.q_begin + s.q_length; ++row) {
        if (lse[row] == -INFINITY) continue;
        const T* a = out.row(row);
        const T* b = dout.row(row);
        F32 sum{};
        for_vectors(dim, [&](std::int64_t d, auto lanes) { sum = fma(load(a + d, lanes), load(b + d, lanes), sum); });
        total -= static_cast<double>(std::exp(sink - lse[row])) * static_cast<double>(reduce_add(sum));
      }
    args.dsinks.data<float>()[head] = static_cast<float>(total);
  });
}

void attention_backward_kernel(const AttentionBackwardArgs& args) {
  if (args.dsinks.defined())
    dispatch<float, bfloat16>(args.q.dtype(), "attention_backward", [&]<class T>() { sink_gradients<T>(args); });
  using Bf16Operand = std::conditional_t<kHasBf16Products, Bf16Pair, float>;
  if (args.q.dtype() == DType::f32)
    backward<float, float>(args);
  else
    backward<bfloat16, Bf16Operand>(args);
}

QUENCH_CPU_KERNEL(attention_backward_slot, attention_backward_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
