#pragma once
// Sum of a row's vectors.

#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// Two levels: error of a few hundred roundings for any row.
class RowSum {
 public:
  QUENCH_INLINE void add(F32 x) {
    part_ += x;
    if (++count_ % kPart != 0) return;
    whole_ += part_;
    part_ = F32{};
  }
  [[nodiscard]] QUENCH_INLINE float value() const { return reduce_add(whole_ + part_); }

 private:
  static constexpr std::int64_t kPart = 64;
  F32 whole_ = {}, part_ = {};
  std::int64_t count_ = 0;
};

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
