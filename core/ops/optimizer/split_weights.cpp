#include "core/ops/optimizer/split_weights.h"

#include "core/number/split_f32.h"
#include "core/ops/op_checks.h"

namespace quench {

Tensor join_weights(const Tensor& upper, const Tensor& low) {
  check_tensor("join_weights", "low", low, upper.shape(), DType::i16);
  check_tensor("join_weights", "upper", upper, upper.shape(), DType::bf16);
  const Tensor values = Tensor::empty(upper.shape(), DType::f32), first = upper.to(Device{}), second = low.to(Device{});
  for (std::int64_t i = 0; i < values.numel(); ++i)
    values.data<float>()[i] = join_f32(first.data<bfloat16>()[i], second.data<std::int16_t>()[i]);
  return values;
}

void split_weights(const Tensor& values, const Tensor& upper, const Tensor& low) {
  check_tensor("split_weights", "values", values, upper.shape(), DType::f32);
  check_tensor("split_weights", "low", low, upper.shape(), DType::i16);
  check_tensor("split_weights", "upper", upper, upper.shape(), DType::bf16);
  const Tensor from = values.to(Device{});
  const Tensor first = Tensor::empty(upper.shape(), DType::bf16), second = Tensor::empty(upper.shape(), DType::i16);
  for (std::int64_t i = 0; i < from.numel(); ++i) {
    const float value = from.data<float>()[i];
    const bfloat16 rounded(value);
    first.data<bfloat16>()[i] = rounded;
    second.data<std::int16_t>()[i] = split_low(value, rounded);
  }
  Tensor(upper).copy_from(first);
  Tensor(low).copy_from(second);
}

}  // namespace quench
