#include "core/ops/attention.h"

#include <cmath>
#include <numbers>

#include "core/cpu/attention_one_query.h"
#include "core/cpu/attention_softmax.h"
#include "core/cpu/attention_tiles.h"
#include "core/cpu/parallel.h"
#include "core/cpu/vector_math.h"
#include "core/device/determinism.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Per thread: keys and values of a sequence, queries and outputs of a tile.
template <class Operand>
struct Scratch {
  Operand *keys, *values, *queries, *weights;
  float *scores, *out, *maxima, *sums;

  static std::int64_t size(std::int64_t max_keys, const HeadLayout<Operand>& layout) {
    return round_up(max_keys, kKeyTile) * (layout.depth + layout.padded) +
           kQueryTile * (layout.row() + layout.padded + 1 + kLanes) + 2 * kMicroRows * kKeyTile + 8 * 16;
  }
  Scratch(float* base, std::int64_t max_keys, const HeadLayout<Operand>& layout) {
    Arena arena(base);
    keys = arena.take<Operand>(round_up(max_keys, kKeyTile) * layout.depth);
    values = arena.take<Operand>(round_up(max_keys, kKeyTile) * layout.padded);
    queries = arena.take<Operand>(kQueryTile * layout.row());
    scores = arena.take<float>(kMicroRows * kKeyTile);
    if constexpr (kPack<Operand> == 1)
      weights = scores;
    else
      weights = arena.take<Operand>(kMicroRows * kKeyTile);
    out = arena.take<float>(kQueryTile * layout.padded);
    maxima = arena.take<float>(kQueryTile);
    sums = arena.take<float>(kQueryTile * kLanes);
  }
};

template <class T, class Operand>
class QueryTile {
 public:
  QueryTile(const AttentionArgs& args, const SequenceRange& s, const Scratch<Operand>& scratch,
            const HeadLayout<Operand>& layout)
      : args_(args),
        s_(s),
        scratch_(scratch),
        layout_(layout),
        scale_(args.scale * std::numbers::log2e_v<float>),
        cap_(unscaled_cap(args.soft_cap, args.scale)) {}

  void run(std::int64_t head, std::int64_t tile) {
    first_ = tile * kQueryTile;
    rows_ = std::min(kQueryTile, s_.q_length - first_);
    pack_rows(HeadView<const T>(args_.q, head), s_.q_begin + first_, rows_, layout_, scratch_.queries);
    std::fill(scratch_.out, scratch_.out + rows_ * layout_.padded, 0.0f);
    std::fill(scratch_.maxima, scratch_.maxima + rows_, -INFINITY);
    std::fill(scratch_.sums, scratch_.sums + rows_ * kLanes, 0.0f);
    const std::int64_t keys = visible_keys(s_, args_.causal, first_ + rows_ - 1);
    const std::int64_t first_key = first_visible_key(s_, args_.window, first_) / kKeyTile * kKeyTile;
    for (std::int64_t key = first_key; key < keys; key += kKeyTile)
      for (std::int64_t row = 0; row < rows_; row += kMicroRows) fold_block(row, key);
    write(head);
  }

 private:
  std::int64_t reach(std::int64_t row, std::int64_t key) const {
    return std::min(kKeyTile, visible_keys(s_, args_.causal, first_ + row) - key);
  }
  std::int64_t hidden(std::int64_t row, std::int64_t key) const {
    return std::max<std::int64_t>(0, first_visible_key(s_, args_.window, first_ + row) - key);
  }

  void fold_block(std::int64_t row, std::int64_t key) {
    const std::int64_t count = std::min<std::int64_t>(kMicroRows, rows_ - row), columns = reach(row + count - 1, key);
    if (columns <= 0 || hidden(row, key) >= kKeyTile) return;
    const std::int64_t vectors = (columns + kLanes - 1) / kLanes, written = vectors * kLanes;
    micro_gemm<false>(MicroGemm<Operand>{.a = scratch_.queries + row * layout_.row(),
                                         .a_row = layout_.row(),
                                         .a_depth = 1,
                                         .b = scratch_.keys + key * layout_.depth,
                                         .b_row = kKeyTile,
                                         .c = scratch_.scores,
                                         .c_row = kKeyTile,
                                         .depth = layout_.depth},
                      count, vectors);
    using Weight = std::conditional_t<kPack<Operand> == 1, float, bfloat16>;
    constexpr std::int64_t kWeightRow = kKeyTile / kPack<Operand>;
    for (std::int64_t i = 0; i < count; ++i) {
      auto* weights = reinterpret_cast<Weight*>(scratch_.weights + i * kWeightRow);
      const std::int64_t unseen = hidden(row + i, key), visible = reach(row + i, key), at = row + i;
      const SoftmaxRow softmax{scratch_.maxima + at, scratch_.sums + at * kLanes, scratch_.out + at * layout_.padded,
                               layout_.padded};
      if (cap_ > 0) cap_scores(scratch_.scores + i * kKeyTile, written, cap_);
      if (visible > unseen)
        softmax.fold(scratch_.scores + i * kKeyTile, unseen, visible, written, scale_, weights);
      else
        std::fill(weights, weights + written, Weight(0.0f));
    }
    micro_gemm<true>(MicroGemm<Operand>{.a = scratch_.weights,
                                        .a_row = kWeightRow,
                                        .a_depth = 1,
                                        .b = scratch_.values + key / kPack<Operand> * layout_.padded,
                                        .b_row = layout_.padded,
                                        .c = scratch_.out + row * layout_.padded,
                                        .c_row = layout_.padded,
                                        .depth = round_up(columns, kPack<Operand>) / kPack<Operand>},
                     count, layout_.padded / kLanes);
  }

  void write(std::int64_t head) const {
    const HeadView<T> out(args_.out, head);
    float* lse = args_.lse.defined() ? args_.lse.data<float>() + head * args_.lse.size(1) : nullptr;
    const float* sink = args_.sinks.defined() ? args_.sinks.data<float>() + head : nullptr;
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::int64_t position = s_.q_begin + first_ + row;
      const bool any = visible_keys(s_, args_.causal, first_ + row) > 0;
      const float sum = reduce_add(load(scratch_.sums + row * kLanes, FullVector{}));
      const RowNormalizer by = any ? normalizer(scratch_.maxima[row], sum, sink) : RowNormalizer{0.0f, -INFINITY};
      unpack_rows(scratch_.out + row * layout_.padded, layout_.padded, by.factor, out, position, 1, layout_.dim);
      if (lse != nullptr) lse[position] = by.lse;
    }
  }

  const AttentionArgs& args_;
  const SequenceRange& s_;
  const Scratch<Operand>& scratch_;
  const HeadLayout<Operand>& layout_;
  float scale_, cap_;
  std::int64_t first_ = 0, rows_ = 0;
};

template <class T, class Operand>
void forward(const AttentionArgs& args) {
  const std::int64_t heads = args.q.size(1), kv_heads = args.k.size(1), group = heads / kv_heads;
  const HeadLayout<Operand> layout(args.q.size(2));
  const auto sequences = static_cast<std::int64_t>(args.sequences.size());
  std::int64_t covered = 0, max_keys = 0, work = 0;
  for (const SequenceRange& s : args.sequences) {
    covered += s.q_length;
    max_keys = std::max(max_keys, s.k_length);
    work += s.q_length * s.k_length * heads * args.q.size(2);
  }
  if (covered < args.q.size(0)) {
    zero_rows<T>(args.out);
    if (args.lse.defined()) std::fill_n(args.lse.data<float>(), args.lse.numel(), -INFINITY);
  }
  const std::int64_t pairs = sequences * kv_heads;
  if (covered == 0) return;
  if (!batch_invariant() && std::ranges::all_of(args.sequences, [](const SequenceRange& s) { return s.q_length <= 1; }))
    return single_queries<T>(
        args, work, [&](std::int64_t head, bool values) { return ValueRows<T>(values ? args.v : args.k, head); });
  // Few heads: queries are split, and keys repacked per split.
  const std::int64_t threads = omp_get_max_threads(), cuts = std::max<std::int64_t>(1, 4 * threads / pairs);

  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t scratch_size = round_up(Scratch<Operand>::size(max_keys, layout), 16);
  const Tensor scratch_memory = Tensor::empty({threads, scratch_size}, DType::f32);
  float* scratch_base = scratch_memory.data<float>();

  parallel_items(pairs * cuts, work, [&](std::int64_t item, int thread) {
    // Longest items (late queries) first.
    const std::int64_t cut = cuts - 1 - item / pairs, kv_head = item % kv_heads;
    const SequenceRange& s = args.sequences[static_cast<std::size_t>(item % pairs / kv_heads)];
    const std::int64_t tiles = (s.q_length + kQueryTile - 1) / kQueryTile;
    const std::int64_t tile_begin = tiles * cut / cuts, tile_end = tiles * (cut + 1) / cuts;
    if (tile_begin == tile_end) return;
    const Scratch<Operand> scratch(scratch_base + thread * scratch_size, max_keys, layout);
    const std::int64_t keys = visible_keys(s, args.causal, std::min(tile_end * kQueryTile, s.q_length) - 1);
    pack_transposed(HeadView<const T>(args.k, kv_head), s.k_begin, keys, layout, scratch.keys);
    pack_depth_rows(HeadView<const T>(args.v, kv_head), s.k_begin, keys, layout, scratch.values);
    QueryTile<T, Operand> query_tile(args, s, scratch, layout);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      for (std::int64_t tile = tile_begin; tile < tile_end; ++tile) query_tile.run(head, tile);
  });
}

void attention_kernel(const AttentionArgs& args) {
  using Bf16Operand = std::conditional_t<kHasBf16Products, Bf16Pair, float>;
  if (args.q.dtype() == DType::f32)
    forward<float, float>(args);
  else
    forward<bfloat16, Bf16Operand>(args);
}

QUENCH_CPU_KERNEL(attention_slot, attention_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
