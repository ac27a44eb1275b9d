#include "export/schemes/finite_values.h"

#include <algorithm>
#include <cmath>

#include "core/number/float_types.h"
#include "core/system/check.h"

namespace quench {
namespace {

// Index of the first non-finite value.
template <class Bits>
std::int64_t finite_count(const void* values, std::int64_t count, Bits exponent) {
  const auto* bits = static_cast<const Bits*>(values);
  std::int64_t first = count;
#pragma omp parallel for schedule(static) reduction(min : first) if (count > (1 << 16))
  for (std::int64_t i = 0; i < count; ++i)
    if ((bits[i] & exponent) == exponent) first = std::min(first, i);
  return first;
}

std::int64_t finite_count(const Tensor& values) {
  switch (values.dtype()) {
    case DType::f32: return finite_count<std::uint32_t>(values.raw_data(), values.numel(), 0x7F800000U);
    case DType::bf16: return finite_count<std::uint16_t>(values.raw_data(), values.numel(), std::uint16_t{0x7F80});
    case DType::f16: return finite_count<std::uint16_t>(values.raw_data(), values.numel(), std::uint16_t{0x7C00});
    default: return values.numel();
  }
}

float finite_check_value(const Tensor& values, std::int64_t i) {
  switch (values.dtype()) {
    case DType::f32: return values.data<float>()[i];
    case DType::bf16: return float(values.data<bfloat16>()[i]);
    default: return float(values.data<float16>()[i]);
  }
}

std::string place_of(const Shape& shape, std::int64_t at) {
  std::string place;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    place = fmt::format("{}{}{}", at % shape[axis], place.empty() ? "" : ", ", place);
    at /= shape[axis];
  }
  return "[" + place + "]";
}

}  // namespace

bool is_finite(const Tensor& values) {
  return finite_count(values) == values.numel();
}

void require_finite(const Tensor& stored, const Tensor& source, std::string_view name) {
  const std::int64_t at = finite_count(stored);
  if (at == stored.numel()) return;
  const float value = finite_check_value(source, at);
  QUENCH_CHECK_AS(ErrorCode::nonfinite, std::isfinite(value),
                  "{} holds NaN or infinity (the first at {}): the model cannot be written; use an earlier checkpoint, "
                  "or find the step at which training diverged",
                  name, place_of(stored.shape(), at));
  QUENCH_FAIL(ErrorCode::nonfinite, "{} holds {} at {}, which {} cannot hold; use bf16 or f32", name, value,
              place_of(stored.shape(), at), to_string(stored.dtype()));
}

}  // namespace quench
