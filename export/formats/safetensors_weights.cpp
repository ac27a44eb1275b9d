#include "export/formats/safetensors_weights.h"

#include <algorithm>

namespace quench {

std::optional<StoredTensor> SafetensorsWeights::find(std::string_view name) const {
  const auto found = files_.find(name);
  if (!found) return std::nullopt;
  return StoredTensor{found->entry->shape, false, found->entry->dtype_name, found->entry->dtype};
}

PackedMatrix SafetensorsWeights::read_packed(std::string_view name) const {
  QUENCH_FAIL(ErrorCode::invalid_argument, "{} is not packed", name);
}

std::string SafetensorsWeights::named(std::string_view name) const {
  return fmt::format("{}: {}", files_.path().string(), name);
}

std::optional<SafetensorsFolder::Location> SafetensorsWeights::part(std::string_view name,
                                                                    std::string_view suffix) const {
  return files_.find(fmt::format("{}{}", name, suffix));
}

SafetensorsFolder::Location SafetensorsWeights::required(std::string_view name, std::string_view suffix) const {
  const auto found = part(name, suffix);
  QUENCH_CHECK_AS(ErrorCode::corrupt, found.has_value(), "{}{} is missing", named(name), suffix);
  return *found;
}

void SafetensorsWeights::check_range(const QuantizedWeight& weight, std::string_view name) const {
  const IntRange range = int_range(weight.scheme.bits);
  const auto* codes = weight.codes.data<std::int8_t>();
  QUENCH_CHECK_AS(ErrorCode::corrupt,
                  std::all_of(codes, codes + weight.codes.numel(),
                              [&](int code) { return code >= range.lowest && code <= range.highest; }),
                  "{} holds codes outside of {} bits", named(name), weight.scheme.bits);
}

Shape scales_shape(const QuantizedWeight& weight, const Shape& single) {
  const std::int64_t rows = weight.shape[0], columns = weight.shape[1], group = weight.scheme.group_size;
  switch (weight.scheme.sharing) {
    case ScaleSharing::tensor: return single;
    case ScaleSharing::row: return {rows, 1};
    case ScaleSharing::group: return {rows, columns / group};
    case ScaleSharing::block: return {(rows + group - 1) / group, (columns + group - 1) / group};
  }
  return {};
}

Tensor zero_points_of(const Tensor& bytes, const Shape& shape) {
  const Tensor points = Tensor::empty(shape, DType::f32);
  for (std::int64_t i = 0; i < bytes.numel(); ++i)
    points.data<float>()[i] = static_cast<float>(bytes.data<std::int8_t>()[i]);
  return points;
}

}  // namespace quench
