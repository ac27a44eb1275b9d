#pragma once
// Decode attention, one query per sequence: keys and values are read in place, since packing costs more than the
// arithmetic.

#include <array>
#include <numbers>
#include <type_traits>

#include "core/cpu/attention_softmax.h"
#include "core/cpu/attention_tiles.h"
#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// Keys or values of a KV head, stored as T.
template <class T>
class ValueRows {
 public:
  using Stored = T;
  ValueRows(const Tensor& heads, std::int64_t head) : view_(heads, head) {}
  const T* row(std::int64_t i) const { return view_.row(i); }
  [[nodiscard]] std::int64_t stride() const { return view_.stride; }
  // Zero-filled past dim.
  static QUENCH_INLINE F32 load(const T* row, std::int64_t d, std::int64_t dim) {
    return load_row(row, d, dim, static_cast<const float*>(nullptr));
  }
  // x[i] times the scale of row first + i.
  void apply_scales(float*, std::int64_t, std::int64_t) const {}

 private:
  HeadView<const T> view_;
};

// T: of queries and outputs. Rows: of keys and values.
template <class T, class Rows = ValueRows<T>>
class OneQuery {
 public:
  // Floats.
  static std::int64_t scratch_size(std::int64_t dim) { return 2 * round_up(dim, kLanes) + kKeyTile; }

  OneQuery(const AttentionArgs& args, const Rows& k, const Rows& v, const SequenceRange& s, std::int64_t head,
           float* scratch)
      : args_(args),
        k_(k),
        v_(v),
        s_(s),
        head_(head),
        dim_(args.q.size(2)),
        padded_(round_up(dim_, kLanes)),
        query_(scratch),
        sums_(scratch + padded_),
        weights_(sums_ + padded_) {}

  void run() {
    const T* query = HeadView<const T>(args_.q, head_).row(s_.q_begin);
    for (std::int64_t d = 0; d < padded_; d += kLanes)
      store(query_ + d, load_row(query, d, dim_, static_cast<const float*>(nullptr)), FullVector{});
    std::fill_n(sums_, padded_, 0.0f);
    const std::int64_t keys = visible_keys(s_, args_.causal, 0), first = first_visible_key(s_, args_.window, 0);
    const SoftmaxRow softmax{&maximum_, sum_.data(), sums_, padded_};
    for (std::int64_t key = first / kKeyTile * kKeyTile; key < keys; key += kKeyTile) {
      const std::int64_t columns = std::min(kKeyTile, keys - key);
      for (std::int64_t i = 0; i < columns; i += kLanes) {
        const auto* rows = k_.row(s_.k_begin + key + i);
        store(weights_ + i, columns - i >= kLanes ? scores<true>(rows) : scores<false>(rows, columns - i),
              FullVector{});
      }
      k_.apply_scales(weights_, s_.k_begin + key, columns);
      if (args_.soft_cap > 0)
        cap_scores(weights_, round_up(columns, kLanes), unscaled_cap(args_.soft_cap, args_.scale));
      softmax.fold(weights_, std::max<std::int64_t>(0, first - key), columns, round_up(columns, kLanes),
                   args_.scale * std::numbers::log2e_v<float>, weights_);
      v_.apply_scales(weights_, s_.k_begin + key, columns);
      add_values(s_.k_begin + key, columns);
    }
    write(keys > 0);
  }

 private:
  using Stored = typename Rows::Stored;

  // Unscaled, zero-filled past `count`.
  template <bool kAll>
  QUENCH_INLINE F32 scores(const Stored* rows, std::int64_t count = kLanes) const {
    const std::int64_t stride = k_.stride();
    F32 sums[kLanes] = {};
    for (std::int64_t d = 0; d < padded_; d += kLanes) {
      const F32 q = load(query_ + d, FullVector{});
      for (int i = 0; i < kLanes; ++i)
        if (kAll || i < count) sums[i] = fma(q, Rows::load(rows + i * stride, d, dim_), sums[i]);
    }
    transpose_lanes(sums);
    F32 total = sums[0];
    for (int i = 1; i < kLanes; ++i) total += sums[i];
    return total;
  }

  void add_values(std::int64_t first, std::int64_t count) {
    constexpr int kVectors = 8;
    for (std::int64_t d = 0; d < padded_; d += kVectors * kLanes) {
      if (d + kVectors * kLanes <= dim_)
        add_columns<kVectors>(first, count, d);
      else
        for (std::int64_t rest = d; rest < padded_; rest += kLanes) add_columns<1>(first, count, rest);
    }
  }
  template <int kVectors>
  QUENCH_INLINE void add_columns(std::int64_t first, std::int64_t count, std::int64_t d) {
    F32 sums[kVectors];
    for (int j = 0; j < kVectors; ++j) sums[j] = load(sums_ + d + j * kLanes, FullVector{});
    for (std::int64_t i = 0; i < count; ++i) {
      const F32 weight = broadcast(weights_[i]);
      const Stored* row = v_.row(first + i);
      for (int j = 0; j < kVectors; ++j) sums[j] = fma(weight, Rows::load(row, d + j * kLanes, dim_), sums[j]);
    }
    for (int j = 0; j < kVectors; ++j) store(sums_ + d + j * kLanes, sums[j], FullVector{});
  }

  void write(bool any) const {
    const float sum = reduce_add(load(sum_.data(), FullVector{}));
    const float* sink = args_.sinks.defined() ? args_.sinks.data<float>() + head_ : nullptr;
    const RowNormalizer by = any ? normalizer(maximum_, sum, sink) : RowNormalizer{0.0f, -INFINITY};
    unpack_rows(sums_, padded_, by.factor, HeadView<T>(args_.out, head_), s_.q_begin, 1, dim_);
    if (args_.lse.defined()) args_.lse.data<float>()[head_ * args_.lse.size(1) + s_.q_begin] = by.lse;
  }

  const AttentionArgs& args_;
  const Rows &k_, &v_;
  const SequenceRange& s_;
  std::int64_t head_, dim_, padded_;
  float *query_, *sums_;  // [padded_] each
  float* weights_;        // [kKeyTile]: scores, then weights
  float maximum_ = -INFINITY;
  alignas(64) std::array<float, kLanes> sum_{};
};

// Sequences of at most one query. rows(head, values): keys, or values, of a KV head.
template <class T, class MakeRows>
void single_queries(const AttentionArgs& args, std::int64_t work, const MakeRows& rows) {
  using Rows = std::invoke_result_t<MakeRows, std::int64_t, bool>;
  using Query = OneQuery<T, Rows>;
  const std::int64_t heads = args.q.size(1), group = heads / args.k.size(1);
  const std::int64_t scratch_size = round_up(Query::scratch_size(args.q.size(2)), 16);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor scratch = Tensor::empty({std::int64_t{omp_get_max_threads()}, scratch_size}, DType::f32);
  parallel_items(std::ssize(args.sequences) * heads, work, [&](std::int64_t item, int thread) {
    const SequenceRange& s = args.sequences[static_cast<std::size_t>(item / heads)];
    const std::int64_t head = item % heads;
    if (s.q_length == 0) return;
    const Rows k = rows(head / group, false), v = rows(head / group, true);
    Query(args, k, v, s, head, scratch.data<float>() + thread * scratch_size).run();
  });
}

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
