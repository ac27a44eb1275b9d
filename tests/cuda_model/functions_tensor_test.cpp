// A network of plain tensor functions gives on a GPU the loss and gradients of the CPU.

#include "autograd/functions_tensor.h"

#include "autograd/functions.h"
#include "core/ops/elementwise.h"
#include "tests/autograd/operands.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

using autograd::Variable;

// Attention of one head over 24 rows, a feed-forward layer, and the mean of squares.
Variable network(const Variable& x, const std::vector<Variable>& weights) {
  const Variable qkv = autograd::matmul(x, weights[0]);
  const auto part = [&](int i) { return autograd::slice(qkv, 1, i * 16, 16); };
  const Variable scores = autograd::scale(autograd::matmul(part(0), part(1), {.transpose_b = true}), 0.25f);
  const Variable read = autograd::matmul(autograd::softmax(scores), part(2));
  const Variable both = autograd::concat({autograd::mul(x, weights[1]), read}, 1);
  const Variable hidden = autograd::concat({autograd::gelu(autograd::matmul(both, weights[2], {.transpose_b = true})),
                                            autograd::gelu(both, GeluForm::exact)},
                                           0);
  const Variable pooled = autograd::concat({autograd::mean_rows(hidden), autograd::slice(hidden, 0, 3, 2)}, 0);
  return autograd::mean(autograd::mul(pooled, pooled));
}

// Loss, and gradients of the input and the weights, on the CPU.
std::vector<Tensor> results(Device device, DType dtype) {
  std::vector<Variable> leaves;
  std::uint64_t stream = 0;
  for (const Shape& shape : {Shape{24, 16}, Shape{16, 48}, Shape{16}, Shape{32, 32}}) {
    const Tensor value = Tensor::empty(shape, dtype);
    cast({randn(shape, ++stream, 0.5f), value});
    leaves.push_back(Variable::leaf(value.to(device), DType::f32));
  }
  autograd::Tape tape;
  const autograd::TapeScope scope(tape);
  const Variable loss = network(leaves[0], {leaves[1], leaves[2], leaves[3]});
  tape.backward(loss);
  std::vector<Tensor> all{loss.value().to(Device{})};
  for (const Variable& leaf : leaves) all.push_back(leaf.grad().to(Device{}));
  return all;
}

TEST(CudaTensorFunctions, LossAndGradientsAreThoseOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::vector<Tensor> expected = results(Device{}, dtype), actual = results(kGpu, dtype);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      double most = 0;
      for (const double value : values(expected[i])) most = std::max(most, std::abs(value));
      EXPECT_TRUE(close(actual[i], values(expected[i]), 0, most * (dtype == DType::f32 ? 1e-4 : 3e-2)))
          << to_string(dtype) << " result " << i;
    }
    const std::vector<Tensor> again = results(kGpu, dtype);
    for (std::size_t i = 0; i < again.size(); ++i) EXPECT_TRUE(same_bits(again[i], actual[i])) << "result " << i;
  }
}

}  // namespace
}  // namespace quench::testing
