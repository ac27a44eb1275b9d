#include "core/ops/optimizer/split_weights.h"

#include "core/number/split_f32.h"
#include "core/tensor/op_checks.h"

namespace quench {

Tensor join_weights(const Tensor& upper, const Tensor& low) {
  check_tensor("join_weights", "low", low, upper.shape(), DType::i16);
  check_tensor("join_weights", "upper", upper, upper.shape(), DType::bf16);
  const Tensor values = Tensor::empty(upper.shape(), DType::f32), first = upper.to(Device{}), second = low.to(Device{});
  auto* out = values.data<float>();
  const auto* high = first.data<bfloat16>();
  const auto* missing = second.data<std::int16_t>();
#pragma omp parallel for
  for (std::int64_t i = 0; i < values.numel(); ++i) out[i] = join_f32(high[i], missing[i]);
  return values;
}

void split_weights(const Tensor& values, const Tensor& upper, const Tensor& low) {
  check_tensor("split_weights", "values", values, upper.shape(), DType::f32);
  check_tensor("split_weights", "low", low, upper.shape(), DType::i16);
  check_tensor("split_weights", "upper", upper, upper.shape(), DType::bf16);
  const Tensor from = values.to(Device{});
  const Tensor first = Tensor::empty(upper.shape(), DType::bf16), second = Tensor::empty(upper.shape(), DType::i16);
  const auto* in = from.data<float>();
  auto* high = first.data<bfloat16>();
  auto* missing = second.data<std::int16_t>();
#pragma omp parallel for
  for (std::int64_t i = 0; i < from.numel(); ++i) {
    high[i] = bfloat16(in[i]);
    missing[i] = split_low(in[i], high[i]);
  }
  Tensor(upper).copy_from(first);
  Tensor(low).copy_from(second);
}

}  // namespace quench
