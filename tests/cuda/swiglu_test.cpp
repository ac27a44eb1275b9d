#include "core/ops/swiglu.h"
#include "core/ops/quantize/quantize.h"

#include "tests/cuda/quantize/quant_outputs_testing.h"

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

QuantTensor poisoned_codes(const Shape& shape, DType source, ElementFormat element, Orientation orientation,
                           const Tensor& scale) {
  const QuantFormat format = code_format(element, Granularity::tensor, orientation);
  return {format, shape, source, poison(format.payload_shape(shape), payload_dtype(element)), scale};
}

// Codes, with and without the values, against casts of the values; the amax rises and never falls.
TEST(CudaSwiglu, CodesUnderGivenScalesMatchCastOfValues) {
  std::uint32_t seed = 60;
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const GatedActivation activation : {GatedActivation::silu, GatedActivation::gelu_tanh})
      for (const Shape& shape : {Shape{1, 1}, {33, 100}, {16, 8}, {48, 136}, {128, 128}, {400, 1000}, {256, 14336}}) {
        SCOPED_TRACE(fmt::format("{}{}", to_string(dtype), shape.to_string()));
        Generator random(++seed);
        const Shape double_width{shape[0], 2 * shape[1]};
        const Tensor gate_up = on_gpu(random.normal(double_width, dtype, 3.0)),
                     dout = on_gpu(random.normal(shape, dtype));
        const Tensor out = poisoned(shape, dtype), dgate_up = poisoned(double_width, dtype);
        swiglu({.gate_up = gate_up, .out = out, .activation = activation});
        swiglu_backward({.dout = dout, .gate_up = gate_up, .dgate_up = dgate_up, .activation = activation});
        // Scales below those of the amax: some values saturate.
        const auto scale_of = [](const Tensor& x, ElementFormat element, float part) {
          const Tensor most = on_cpu(amax(x, Granularity::tensor));
          most.data<float>()[0] *= part;
          return float8_scale(on_gpu(most), element, false);
        };
        const Tensor scale = scale_of(out, ElementFormat::e4m3, 0.7f),
                     gradient_scale = scale_of(dgate_up, ElementFormat::e5m2, 0.9f);
        const Float8Pair expected = cast_float8_pair(out, scale, ElementFormat::e4m3),
                         gradient = cast_float8_pair(dgate_up, gradient_scale, ElementFormat::e5m2);
        for (const bool values : {false, true}) {
          const auto codes = [&](Orientation orientation) {
            return poisoned_codes(shape, dtype, ElementFormat::e4m3, orientation, scale);
          };
          QuantOutputs forward{.amax = on_gpu(Tensor::zeros({}, DType::f32)), .codes = codes(Orientation::natural)};
          const Tensor again = values ? poisoned(shape, dtype) : Tensor();
          if (values) forward.transposed_codes = codes(Orientation::transposed);
          swiglu({.gate_up = gate_up, .out = again, .quant_outputs = forward, .activation = activation});
          EXPECT_TRUE(same(forward.codes.payload(), expected.natural.payload()));
          EXPECT_TRUE(same_bits(on_cpu(forward.amax), on_cpu(amax(out, Granularity::tensor))));
          if (values) {
            EXPECT_TRUE(same(forward.transposed_codes.payload(), expected.transposed.payload()));
            EXPECT_TRUE(same_bits(on_cpu(again), on_cpu(out)));
          }
          const auto gradient_codes = [&](Orientation orientation) {
            return poisoned_codes(double_width, dtype, ElementFormat::e5m2, orientation, gradient_scale);
          };
          const QuantOutputs backward{.amax = on_gpu(Tensor::zeros({}, DType::f32)),
                                      .codes = gradient_codes(Orientation::natural),
                                      .transposed_codes = gradient_codes(Orientation::transposed)},
              recomputed{.transposed_codes = codes(Orientation::transposed)};
          const Tensor into = values ? gate_up.clone() : Tensor(),
                       out_again = values ? poisoned(shape, dtype) : Tensor();
          swiglu_backward({.dout = dout,
                           .gate_up = values ? into : gate_up,
                           .dgate_up = into,
                           .out = out_again,
                           .quant_outputs = backward,
                           .out_codes = recomputed,
                           .activation = activation});
          EXPECT_TRUE(same(backward.codes.payload(), gradient.natural.payload()));
          EXPECT_TRUE(same(backward.transposed_codes.payload(), gradient.transposed.payload()));
          EXPECT_TRUE(same_bits(on_cpu(backward.amax), on_cpu(amax(dgate_up, Granularity::tensor))));
          EXPECT_TRUE(same(recomputed.transposed_codes.payload(), expected.transposed.payload()));
          if (!values) continue;
          EXPECT_TRUE(same_bits(on_cpu(into), on_cpu(dgate_up)));
          EXPECT_TRUE(same_bits(on_cpu(out_again), on_cpu(out)));
        }
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
