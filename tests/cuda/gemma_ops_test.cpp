// Gemma's forms of norms, gated units, attention and logits, against the CPU kernels.

#include "core/ops/norm.h"
#include "core/ops/soft_cap.h"
#include "core/ops/swiglu.h"
#include "tests/cuda/attention_problem.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

TEST(CudaGemmaOps, NormsWithAWeightOffset) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{1, 1}, Shape{40, 33}, Shape{300, 64}, Shape{33, 1152}, Shape{20, 2560},
                               Shape{5, 8192}, Shape{2, 40000}, Shape{7, 4, 256}})
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(fmt::format("{}{} layout {}", to_string(dtype), shape.to_string(), static_cast<int>(layout)));
        Generator random(++seed);
        const Tensor x = normal(random, shape, dtype, layout), dy = normal(random, shape, dtype, layout);
        const Tensor weight = random.normal({shape[-1]}, dtype);
        Shape rows;
        for (int i = 0; i + 1 < shape.rank(); ++i) rows.push_back(shape[i]);
        const auto run = [&](const auto& place, const Tensor& y, const Tensor& rstd, const Tensor& dx,
                             const Tensor& dweight, const Tensor& again) {
          rms_norm(
              {.x = place(x), .weight = place(weight), .weight_offset = 1, .f32_weight = true, .y = y, .rstd = rstd});
          rms_norm_backward({.dy = place(dy),
                             .x = place(x),
                             .weight = place(weight),
                             .rstd = rstd,
                             .dx = dx,
                             .dweight = dweight,
                             .weight_offset = 1,
                             .f32_weight = true,
                             .y = again});
        };
        const Tensor y = Tensor::empty(shape, dtype), rstd = Tensor::empty(rows, DType::f32),
                     dx = Tensor::empty(shape, dtype), dweight = Tensor::empty({shape[-1]}, DType::f32),
                     again = Tensor::empty(shape, dtype);
        run([](const Tensor& t) { return t; }, y, rstd, dx, dweight, again);
        const Tensor gpu_y = poisoned(shape, dtype, layout), gpu_rstd = poisoned(rows, DType::f32),
                     gpu_dx = poisoned(shape, dtype, layout), gpu_dweight = poisoned({shape[-1]}, DType::f32),
                     gpu_again = poisoned(shape, dtype, layout);
        run([](const Tensor& t) { return on_gpu(t); }, gpu_y, gpu_rstd, gpu_dx, gpu_dweight, gpu_again);
        EXPECT_TRUE(matches(gpu_y, y, dtype == DType::bf16 ? one_step(dtype) : 2e-6, 1e-6));
        EXPECT_EQ(values(on_cpu(gpu_again)), values(on_cpu(gpu_y)));
        EXPECT_TRUE(matches(gpu_dx, dx, dtype == DType::bf16 ? one_step(dtype) : 1e-5, shape[-1] == 1 ? 1e-4 : 1e-5));
        EXPECT_TRUE(matches(gpu_dweight, dweight, 1e-5, 4e-5));
      }
}

TEST(CudaGemmaOps, QuantizationOutputsOfNormsWithAWeightOffset) {
  Generator random(5);
  for (const std::int64_t width : {512, 2560, 8192}) {
    const Shape shape{70, width};
    const Tensor x = on_gpu(random.normal(shape, DType::bf16)), weight = on_gpu(random.normal({width}, DType::bf16));
    const Tensor y = poisoned(shape, DType::bf16), again = poisoned(shape, DType::bf16),
                 rstd = poisoned({70}, DType::f32), amax = Tensor::zeros({}, DType::f32, kGpu),
                 column_amax = Tensor::zeros({width}, DType::f32, kGpu);
    rms_norm({.x = x, .weight = weight, .weight_offset = 1, .f32_weight = true, .y = y, .rstd = rstd});
    rms_norm({.x = x,
              .weight = weight,
              .weight_offset = 1,
              .f32_weight = true,
              .y = again,
              .rstd = rstd,
              .quant_outputs = {.amax = amax, .column_amax = column_amax}});
    EXPECT_TRUE(same_bits(on_cpu(again), on_cpu(y)));
    double largest = 0;
    for (const double value : values(on_cpu(y))) largest = std::max(largest, std::abs(value));
    EXPECT_EQ(values(on_cpu(amax))[0], largest);
  }
}

TEST(CudaGemmaOps, GeluTanhUnits) {
  std::uint32_t seed = 20;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{1, 1}, Shape{33, 100}, Shape{200, 129}, Shape{150, 10240}}) {
      SCOPED_TRACE(fmt::format("{}{}", to_string(dtype), shape.to_string()));
      Generator random(++seed);
      const Shape both{shape[0], 2 * shape[1]};
      const Tensor gate_up = random.normal(both, dtype, 3.0), dout = random.normal(shape, dtype);
      const Tensor out = Tensor::empty(shape, dtype), dgate_up = Tensor::empty(both, dtype);
      const Tensor gpu_out = poisoned(shape, dtype), gpu_dgate_up = poisoned(both, dtype),
                   again = poisoned(shape, dtype);
      constexpr auto kGelu = GatedActivation::gelu_tanh;
      swiglu({.gate_up = gate_up, .out = out, .activation = kGelu});
      swiglu_backward({.dout = dout, .gate_up = gate_up, .dgate_up = dgate_up, .activation = kGelu});
      swiglu({.gate_up = on_gpu(gate_up), .out = gpu_out, .activation = kGelu});
      swiglu_backward({.dout = on_gpu(dout),
                       .gate_up = on_gpu(gate_up),
                       .dgate_up = gpu_dgate_up,
                       .out = again,
                       .activation = kGelu});
      const double step = dtype == DType::bf16 ? one_step(dtype) : 4e-6;
      EXPECT_TRUE(matches(gpu_out, out, step, 1e-6));
      EXPECT_TRUE(matches(gpu_dgate_up, dgate_up, step, 1e-5));
      EXPECT_TRUE(same_bits(on_cpu(again), on_cpu(gpu_out)));
    }
}

TEST(CudaGemmaOps, SoftCapOfLogits) {
  std::uint32_t seed = 30;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{3, 7}, Shape{40, 1000}}) {
      Generator random(++seed);
      const Tensor x = random.normal(shape, dtype, 20.0), dx = random.normal(shape, dtype);
      const Tensor gpu_x = on_gpu(x), gpu_dx = on_gpu(dx);
      soft_cap({.x = x, .factor = 0.5f, .cap = 30.0f});
      soft_cap({.x = gpu_x, .factor = 0.5f, .cap = 30.0f});
      const double step = dtype == DType::bf16 ? one_step(dtype) : 1e-6;
      EXPECT_TRUE(matches(gpu_x, x, step, 1e-6));
      soft_cap_backward({.dx = gpu_dx, .y = on_gpu(x), .factor = 0.5f, .cap = 30.0f});
      soft_cap_backward({.dx = dx, .y = x, .factor = 0.5f, .cap = 30.0f});
      EXPECT_TRUE(matches(gpu_dx, dx, step, 1e-6));
    }
}

TEST(CudaGemmaOps, SoftCapOfScores) {
  Generator random(40);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const float cap : {0.5f, 50.0f}) {
      const Calls tiled("attention.tiled"), backward("attention_backward.tiled"), decode("attention.decode");
      AttentionRun(random, {.heads = 8,
                            .kv_heads = 4,
                            .dim = 256,
                            .dtype = dtype,
                            .window = 70,
                            .soft_cap = cap,
                            .views = Views::fused,
                            .lengths = {{130, 130}, {65, 65}}})
          .check();
      EXPECT_EQ(tiled.count(), 1);
      EXPECT_EQ(backward.count(), 1);
      for (const auto& [queries, keys] : {std::pair{1, 4000}, {1, 300}, {3, 640}})
        AttentionRun(
            random,
            {.heads = 8, .kv_heads = 4, .dim = 256, .dtype = dtype, .soft_cap = cap, .lengths = {{queries, keys}}})
            .check_without_lse();
      EXPECT_EQ(decode.count(), 3);
    }
}

}  // namespace
}  // namespace quench::testing
