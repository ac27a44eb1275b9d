#include "export/formats/safetensors_rows.h"

#include "core/system/check.h"

namespace quench {

void read_rows(const SafetensorsFolder::Location& stored, const Tensor& out, std::int64_t first_row) {
  const std::uint64_t row_bytes = stored.entry->nbytes() / static_cast<std::uint64_t>(stored.entry->shape[0]);
  stored.read({static_cast<std::byte*>(out.raw_data()), out.nbytes()},
              static_cast<std::uint64_t>(first_row) * row_bytes);
}

Tensor read_entry(const SafetensorsFolder& folder, const SafetensorsFolder::Location& stored, const Shape& shape,
                  DType dtype) {
  const SafetensorsEntry& entry = *stored.entry;
  QUENCH_CHECK_AS(ErrorCode::corrupt, entry.shape == shape && entry.dtype == dtype, "{}: {} is {}{}, expected {}{}",
                  folder.path().string(), entry.name, entry.dtype_name, entry.shape.to_string(),
                  safetensors_name(dtype), shape.to_string());
  const Tensor out = Tensor::empty(shape, dtype);
  stored.read({static_cast<std::byte*>(out.raw_data()), out.nbytes()});
  return out;
}

}  // namespace quench
