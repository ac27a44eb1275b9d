#include "tests/core/ops/quantize/quant_error_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

QuantTensor copy_on_gpu(const QuantTensor& q) {
  return {q.format(), q.shape(), q.source_dtype(), on_gpu(q.payload()), on_gpu(q.scales())};
}

Tensor poisoned_result() {
  const Tensor out = Tensor::empty({QuantError::kFields}, DType::f64);
  fill(out, -1.0);
  return on_gpu(out);
}

QuantError error_on_gpu(const Tensor& x, const QuantTensor& q) {
  const Tensor out = poisoned_result();
  quant_error({on_gpu(x), copy_on_gpu(q), out});
  return QuantError::read(out);
}

TEST(CudaQuantError, EveryFormatAgainstTheDefinition) {
  Generator random(1);
  for (const QuantErrorCase& c : quant_error_cases()) {
    SCOPED_TRACE(describe(c));
    const auto [x, q] = quant_error_input(random, c);
    expect_same_error(error_on_gpu(x, q), quant_error_reference(x, q));
  }
}

TEST(CudaQuantError, NanAndInfinity) {
  for (const double special : {std::nan(""), HUGE_VAL, -HUGE_VAL})
    for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column})
      for (const DType dtype : {DType::bf16, DType::f32}) {
        Generator random(3);
        const Tensor x = random.normal({4, 40}, dtype);
        set_element(x, 50, special);
        const QuantTensor q = quantize_float8(x, {.granularity = granularity});
        expect_same_error(error_on_gpu(x, q), quant_error_reference(x, q));
      }
}

TEST(CudaQuantError, EmptyIsZero) {
  for (const Shape& shape : {Shape{0, 8}, Shape{8, 0}}) {
    const Tensor x = Tensor::empty(shape, DType::f32, kGpu), out = poisoned_result();
    quant_error({x, QuantTensor::empty({}, shape, DType::f32, kGpu), out});
    expect_same_error(QuantError::read(out), QuantError());
  }
}

// Many chunks: more than one for each thread of the last kernel, and the same bits on every run.
TEST(CudaQuantError, LargeTensorsRepeatBitForBit) {
  const std::int64_t rows = 8200, columns = 4096;
  Generator random(4);
  const Tensor block = on_gpu(random.normal({1, columns}, DType::bf16));
  const Tensor x = Tensor::empty({rows, columns}, DType::bf16, kGpu);
  for (std::int64_t r = 0; r < rows; ++r) x.narrow(0, r, 1).copy_from(block);
  for (const Granularity granularity : {Granularity::tensor, Granularity::row}) {
    const QuantTensor q = quantize_float8(x, {.granularity = granularity});
    const Tensor first = poisoned_result(), second = poisoned_result(), row = poisoned_result();
    quant_error({x, q, first});
    quant_error({x, q, second});
    quant_error({block, quantize_float8(block, {.granularity = granularity}), row});
    EXPECT_TRUE(same_bits(on_cpu(first), on_cpu(second)));
    // Rows are alike: every sum is that of one row, times their number.
    QuantError expected = QuantError::read(row);
    for (double* sum : {&expected.signal, &expected.noise, &expected.saturated, &expected.underflows})
      *sum *= static_cast<double>(rows);
    expect_same_error(QuantError::read(first), expected);
  }
}

}  // namespace
}  // namespace quench::testing
