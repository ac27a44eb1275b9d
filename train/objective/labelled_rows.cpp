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

std::vector<float> LabelledRows::spread(const Tensor& values) const {
  const Tensor host = values.to(Device{});
  const float* x = host.data<float>();
  if (rows_.empty()) return {x, x + host.numel()};
  std::vector<float> all(static_cast<std::size_t>(count_), 0.0f);
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i] >= 0) all[static_cast<std::size_t>(rows_[i])] = x[i];
  return all;
}

std::vector<float> LabelledRows::select(const std::vector<float>& values) const {
  if (rows_.empty()) return values;
  std::vector<float> selected;
  for (const std::int32_t row : rows_) selected.push_back(row < 0 ? 0.0f : values[static_cast<std::size_t>(row)]);
  return selected;
}

}  // namespace quench
