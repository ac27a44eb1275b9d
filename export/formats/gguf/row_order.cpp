#include "export/formats/gguf/row_order.h"

#include <cstring>

namespace quench {
namespace {

Tensor reorder(const Tensor& rows, std::int64_t heads, bool interleave) {
  const std::int64_t head_dim = rows.size(0) / heads, half = head_dim / 2;
  QUENCH_CHECK(rows.size(0) == heads * head_dim && head_dim % 2 == 0 && rows.is_contiguous(),
               "rows {} of {} heads cannot be reordered", rows.describe(), heads);
  const Tensor out = Tensor::empty(rows.shape(), rows.dtype());
  const std::size_t bytes = rows.nbytes() / static_cast<std::size_t>(rows.size(0));
  const auto* from = static_cast<const std::byte*>(rows.raw_data());
  auto* to = static_cast<std::byte*>(out.raw_data());
  for (std::int64_t row = 0; row < rows.size(0); ++row) {
    const std::int64_t head = row / head_dim, i = row % head_dim;
    const std::int64_t separate = head * head_dim + i % 2 * half + i / 2;
    const auto target = static_cast<std::size_t>(interleave ? row : separate);
    const auto source = static_cast<std::size_t>(interleave ? separate : row);
    std::memcpy(to + target * bytes, from + source * bytes, bytes);
  }
  return out;
}

}  // namespace

Tensor interleave_heads(const Tensor& rows, std::int64_t heads) {
  return reorder(rows, heads, true);
}

Tensor separate_heads(const Tensor& rows, std::int64_t heads) {
  return reorder(rows, heads, false);
}

}  // namespace quench
