#pragma once
// Rows of a micro-batch that have a label: an LM head computes no logits of the others.

#include <cstdint>
#include <utility>
#include <vector>

#include "autograd/functions_moe.h"

namespace quench {

class LabelledRows {
 public:
  // `labels`: i32 [N], on the host. All rows are kept if at least 7 of 8 have a label; else rows of zeros and
  // kIgnoreLabel round their number up, so that GEMMs meet few sizes.
  LabelledRows(const Tensor& labels, Device device);

  // i32 [R], on the device.
  [[nodiscard]] const Tensor& labels() const noexcept { return labels_; }
  // [N,H] -> [R,H]
  [[nodiscard]] autograd::Variable select(const autograd::Variable& hidden) const;
  // The values of the R rows of [N]; `added` in added rows.
  [[nodiscard]] std::vector<std::int32_t> select(const std::vector<std::int32_t>& values, std::int32_t added) const;
  // The rows of [begin, end) among the R: from .first up to .second.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> selected_range(std::int64_t begin, std::int64_t end) const;

 private:
  std::int64_t count_;                // N
  std::vector<std::int32_t> rows_;    // -1: added; empty: all
  autograd::TokenPermutation index_;  // on the device
  Tensor labels_;
};

}  // namespace quench
