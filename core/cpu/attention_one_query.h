#pragma once
// Decode attention, one query per sequence: keys and values are read in place, since packing costs more than the
// arithmetic.

#include <array>
#include <numbers>

#include "core/cpu/attention_softmax.h"
#include "core/cpu/attention_tiles.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

template <class T>
class OneQuery {
 public:
  // Floats.
  static std::int64_t scratch_size(std::int64_t dim) { return 2 * round_up(dim, kLanes) + kKeyTile; }

  OneQuery(const AttentionArgs& args, const SequenceRange& s, std::int64_t head, float* scratch)
      : args_(args),
        s_(s),
        head_(head),
        dim_(args.q.size(2)),
        padded_(round_up(dim_, kLanes)),
        query_(scratch),
        sums_(scratch + padded_),
        weights_(sums_ + padded_) {}

  void run() {
    const std::int64_t kv_head = head_ / (args_.q.size(1) / args_.k.size(1));
    const HeadView<const T> k(args_.k, kv_head), v(args_.v, kv_head);
    const T* query = HeadView<const T>(args_.q, head_).row(s_.q_begin);
    for (std::int64_t d = 0; d < padded_; d += kLanes) store(query_ + d, load_f32(query, d), FullVector{});
    std::fill_n(sums_, padded_, 0.0f);
    const std::int64_t keys = visible_keys(s_, args_.causal, 0), first = first_visible_key(s_, args_.window, 0);
    const SoftmaxRow softmax{&maximum_, sum_.data(), sums_, padded_};
    for (std::int64_t key = first / kKeyTile * kKeyTile; key < keys; key += kKeyTile) {
      const std::int64_t columns = std::min(kKeyTile, keys - key);
      for (std::int64_t i = 0; i < columns; i += kLanes) {
        const T* rows = k.row(s_.k_begin + key + i);
        store(weights_ + i,
              columns - i >= kLanes ? scores<true>(rows, k.stride) : scores<false>(rows, k.stride, columns - i),
              FullVector{});
      }
      if (args_.soft_cap > 0)
        cap_scores(weights_, round_up(columns, kLanes), unscaled_cap(args_.soft_cap, args_.scale));
      softmax.fold(weights_, std::max<std::int64_t>(0, first - key), columns, round_up(columns, kLanes),
                   args_.scale * std::numbers::log2e_v<float>, weights_);
      add_values(v, s_.k_begin + key, columns);
    }
    write(keys > 0);
  }

 private:
  // Zero-filled past dim.
  QUENCH_INLINE F32 load_f32(const T* row, std::int64_t d) const {
    return load_row(row, d, dim_, static_cast<const float*>(nullptr));
  }

  // Unscaled, zero-filled past `count`.
  template <bool kAll>
  QUENCH_INLINE F32 scores(const T* rows, std::int64_t stride, std::int64_t count = kLanes) const {
    F32 sums[kLanes] = {};
    for (std::int64_t d = 0; d < padded_; d += kLanes) {
      const F32 q = load(query_ + d, FullVector{});
      for (int i = 0; i < kLanes; ++i)
        if (kAll || i < count) sums[i] = fma(q, load_f32(rows + i * stride, d), sums[i]);
    }
    transpose_lanes(sums);
    F32 total = sums[0];
    for (int i = 1; i < kLanes; ++i) total += sums[i];
    return total;
  }

  void add_values(const HeadView<const T>& v, std::int64_t first, std::int64_t count) {
    constexpr int kVectors = 8;
    for (std::int64_t d = 0; d < padded_; d += kVectors * kLanes) {
      if (d + kVectors * kLanes <= dim_)
        add_columns<kVectors>(v, first, count, d);
      else
        for (std::int64_t rest = d; rest < padded_; rest += kLanes) add_columns<1>(v, first, count, rest);
    }
  }
  template <int kVectors>
  QUENCH_INLINE void add_columns(const HeadView<const T>& v, std::int64_t first, std::int64_t count, std::int64_t d) {
    F32 sums[kVectors];
    for (int j = 0; j < kVectors; ++j) sums[j] = load(sums_ + d + j * kLanes, FullVector{});
    for (std::int64_t i = 0; i < count; ++i) {
      const F32 weight = broadcast(weights_[i]);
      const T* row = v.row(first + i);
      for (int j = 0; j < kVectors; ++j) sums[j] = fma(weight, load_f32(row, d + j * kLanes), sums[j]);
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
  const SequenceRange& s_;
  std::int64_t head_, dim_, padded_;
  float *query_, *sums_;  // [padded_] each
  float* weights_;        // [kKeyTile]: scores, then weights
  float maximum_ = -INFINITY;
  alignas(64) std::array<float, kLanes> sum_{};
};

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
