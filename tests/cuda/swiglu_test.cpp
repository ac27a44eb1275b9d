#include "core/ops/swiglu.h"

#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

const Shape kSwigluShapes[] = {{1, 1}, {3, 5}, {4, 16}, {33, 100}, {200, 129}, {7, 14336}, {150, 4096}};  // [N,I]

// A contiguous tensor that starts one element after an aligned address.
Tensor unaligned(Generator& random, const Shape& shape, DType dtype, double scale = 1.0) {
  const Tensor t = Tensor::empty({shape.numel() + 1}, dtype).narrow(0, 1, shape.numel()).view(shape);
  random.fill_normal(t, scale);
  return t;
}

TEST(CudaSwiglu, ForwardAndBackwardMatchTheCpu) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kSwigluShapes)
      for (const bool aligned : {true, false}) {
        SCOPED_TRACE(fmt::format("{}{} aligned {}", to_string(dtype), shape.to_string(), aligned));
        Generator random(++seed);
        const Shape double_width{shape[0], 2 * shape[1]};
        const Tensor gate_up =
            aligned ? random.normal(double_width, dtype, 3.0) : unaligned(random, double_width, dtype, 3.0);
        const Tensor dout = aligned ? random.normal(shape, dtype) : unaligned(random, shape, dtype);
        const Tensor out = Tensor::empty(shape, dtype), dgate_up = Tensor::empty(double_width, dtype);
        swiglu({gate_up, out});
        swiglu_backward({dout, gate_up, dgate_up});
        const Tensor gpu_gate_up = on_gpu(gate_up), gpu_dout = on_gpu(dout), gpu_out = poisoned(shape, dtype),
                     gpu_dgate_up = poisoned(double_width, dtype);
        swiglu({gpu_gate_up, gpu_out});
        const double step = dtype == DType::bf16 ? one_step(dtype) : 1e-6;
        EXPECT_TRUE(matches(gpu_out, out, step, 1e-7));
        swiglu_backward({gpu_dout, gpu_gate_up, gpu_dgate_up});
        // The derivative has a zero near -1.28, where its terms cancel.
        EXPECT_TRUE(matches(gpu_dgate_up, dgate_up, step, 4e-6));
        const Tensor again = poisoned(double_width, dtype);
        swiglu_backward({gpu_dout, gpu_gate_up, again});
        EXPECT_TRUE(same_bits(on_cpu(again), on_cpu(gpu_dgate_up)));
        const Tensor out_again = poisoned(shape, dtype);
        swiglu_backward({gpu_dout, gpu_gate_up, gpu_gate_up, out_again});
        EXPECT_TRUE(same_bits(on_cpu(out_again), on_cpu(gpu_out)));
        EXPECT_TRUE(same_bits(on_cpu(gpu_gate_up), on_cpu(gpu_dgate_up)));
      }
}

TEST(CudaSwiglu, ExtremeGates) {
  const float gates[] = {-200.0f, -90.0f, -0.0f, 90.0f, 200.0f, INFINITY, -INFINITY, NAN};
  const Tensor gate_up = Tensor::zeros({8, 8}, DType::f32);
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 4; ++j) {
      gate_up.data<float>()[8 * i + j] = gates[i];
      gate_up.data<float>()[8 * i + 4 + j] = 1.0f;
    }
  const Tensor gpu_out = poisoned({8, 4}, DType::f32);
  swiglu({on_gpu(gate_up), gpu_out});
  const Tensor out = on_cpu(gpu_out);
  for (int j = 0; j < 4; ++j) {
    const auto y = [&](int row) { return out.data<float>()[4 * row + j]; };
    EXPECT_NEAR(y(0), 0.0f, 1e-30f);
    EXPECT_NEAR(y(1), 0.0f, 1e-30f);
    EXPECT_EQ(y(2), 0.0f);
    EXPECT_EQ(y(3), 90.0f);
    EXPECT_EQ(y(4), 200.0f);
    EXPECT_EQ(y(5), INFINITY);
    EXPECT_TRUE(std::isnan(y(6)));  // -inf * 0
    EXPECT_TRUE(std::isnan(y(7)));
  }
  swiglu({Tensor::empty({0, 4}, DType::f32, kGpu), Tensor::empty({0, 2}, DType::f32, kGpu)});
}

}  // namespace
}  // namespace quench::testing
