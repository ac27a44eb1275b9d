#include "train/objective/labelled_rows.h"

#include <algorithm>

#include "core/ops/loss/cross_entropy.h"

namespace quench {

LabelledRows::LabelledRows(const Tensor& labels, Device device) : count_(labels.numel()), labels_(labels) {
  if (!device.is_meta()) {
    const std::span all(labels.data<std::int32_t>(), static_cast<std::size_t>(count_));
    const std::int64_t labelled = count_ - std::ranges::count(all, kIgnoreLabel);
    const std::int64_t step = std::clamp<std::int64_t>(count_ / 16, 1, 128);
    const std::int64_t size = (labelled + step - 1) / step * step;
    if (labelled > 0 && 8 * size <= 7 * count_) {
      std::vector<std::int32_t> selected(static_cast<std::size_t>(size), kIgnoreLabel);
      for (std::size_t row = 0; row < all.size(); ++row) {
        if (all[row] == kIgnoreLabel) continue;
        selected[rows_.size()] = all[row];
        rows_.push_back(static_cast<std::int32_t>(row));
      }
      rows_.resize(static_cast<std::size_t>(size), -1);
      index_ = autograd::select_tokens(rows_, count_, device);
      labels_ = Tensor::from_values<std::int32_t>({size}, selected);
    }
  }
  labels_ = labels_.view({labels_.numel()}).to(device);
}

autograd::Variable LabelledRows::select(const autograd::Variable& hidden) const {
  return rows_.empty() ? hidden : autograd::permute_tokens(hidden, index_);
}

std::vector<std::int32_t> LabelledRows::select(const std::vector<std::int32_t>& values, std::int32_t added) const {
  if (rows_.empty()) return values;
  std::vector<std::int32_t> selected;
  for (const std::int32_t row : rows_) selected.push_back(row < 0 ? added : values[static_cast<std::size_t>(row)]);
  return selected;
}

std::pair<std::int64_t, std::int64_t> LabelledRows::selected_range(std::int64_t begin, std::int64_t end) const {
  if (rows_.empty()) return {begin, end};
  // Ascending; added rows follow.
  const auto last = std::ranges::find(rows_, -1);
  const auto at = [&](std::int64_t row) { return std::lower_bound(rows_.begin(), last, row) - rows_.begin(); };
  return {at(begin), at(end)};
}

}  // namespace quench
