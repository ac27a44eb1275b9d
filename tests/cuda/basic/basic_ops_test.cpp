// Products, softmax and GELU of plain tensors, against the CPU kernels.

#include "core/ops/basic/gelu.h"
#include "core/ops/basic/mul.h"
#include "core/ops/basic/softmax.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

// x, at an aligned address or one element after it.
Tensor placed(Generator& random, const Shape& shape, DType dtype, bool aligned, double scale = 1.0) {
  const Tensor t = aligned ? Tensor::empty(shape, dtype)
                           : Tensor::empty({shape.numel() + 1}, dtype).narrow(0, 1, shape.numel()).view(shape);
  random.fill_normal(t, scale);
  return t;
}

TEST(CudaBasicOps, ProductsMatchTheCpu) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool wide : {false, true})
      for (const bool aligned : {true, false})
        for (const Shape& shape : {Shape{1}, Shape{17}, Shape{5, 7}, Shape{3, 4, 16}, Shape{33, 129}, Shape{700, 64},
                                   Shape{60, 4096}, Shape{1500000}, Shape{0, 4}}) {
          SCOPED_TRACE(fmt::format("{}{} wide {} aligned {}", to_string(dtype), shape.to_string(), wide, aligned));
          Generator random(++seed);
          const DType out_dtype = wide ? DType::f32 : dtype;
          const Tensor a = placed(random, shape, dtype, aligned), b = placed(random, shape, dtype, aligned),
                       row = placed(random, {shape[-1]}, dtype, aligned), out = Tensor::empty(shape, out_dtype);
          if (a.numel() > 3) set_element(a, 3, std::nan(""));
          const Tensor gpu_a = on_gpu(a), gpu_b = on_gpu(b), gpu_row = on_gpu(row);
          for (const bool rows : {false, true}) {
            const Tensor gpu_out = poisoned(shape, out_dtype);
            mul({a, rows ? row : b, out});
            mul({gpu_a, rows ? gpu_row : gpu_b, gpu_out});
            EXPECT_TRUE(matches(gpu_out, out, 0, 0));
          }
          EXPECT_TRUE(matches(gpu_b, b, 0, 0) && matches(gpu_row, row, 0, 0) && matches(gpu_a, a, 0, 0));
          if (wide && dtype != DType::f32) continue;
          mul({a, b, out});
          mul({gpu_a, gpu_b, gpu_a});
          EXPECT_TRUE(matches(gpu_a, out, 0, 0));
        }
}

TEST(CudaBasicOps, BroadcastRowsMatchTheCpu) {
  std::uint32_t seed = 300;
  for (const DType from_dtype : {DType::f32, DType::bf16})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool aligned : {true, false})
        for (const Shape& shape : {Shape{1, 1}, Shape{5, 7}, Shape{600, 64}, Shape{1, 70001}, Shape{0, 3}})
          for (const std::int64_t width : {std::int64_t{1}, shape[1]}) {
            SCOPED_TRACE(fmt::format("{} to {}{} width {} aligned {}", to_string(from_dtype), to_string(dtype),
                                     shape.to_string(), width, aligned));
            Generator random(++seed);
            const Tensor from = placed(random, {width}, from_dtype, aligned), out = Tensor::empty(shape, dtype),
                         gpu_out = poisoned(shape, dtype);
            broadcast_rows({.from = from, .out = out, .scale = 0.3f});
            broadcast_rows({.from = on_gpu(from), .out = gpu_out, .scale = 0.3f});
            EXPECT_TRUE(matches(gpu_out, out, 0, 0));
          }
}

TEST(CudaBasicOps, SoftmaxMatchesTheCpu) {
  std::uint32_t seed = 500;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool aligned : {true, false})
      for (const Shape& shape : {Shape{1, 1}, Shape{9, 2}, Shape{3, 7}, Shape{1000, 33}, Shape{70, 1023},
                                 Shape{5, 1024}, Shape{3, 40001}, Shape{0, 4}}) {
        SCOPED_TRACE(fmt::format("{}{} aligned {}", to_string(dtype), shape.to_string(), aligned));
        Generator random(++seed);
        const Tensor x = placed(random, shape, dtype, aligned, 4.0), dy = placed(random, shape, dtype, aligned);
        const Tensor y = Tensor::empty(shape, dtype), dx = Tensor::empty(shape, dtype);
        const Tensor gpu_x = on_gpu(x), gpu_dy = on_gpu(dy), gpu_y = poisoned(shape, dtype),
                     gpu_dx = poisoned(shape, dtype);
        softmax({x, y});
        softmax({gpu_x, gpu_y});
        const double step = dtype == DType::bf16 ? one_step(dtype) : 1e-5;
        EXPECT_TRUE(matches(gpu_y, y, step, 1e-30));
        softmax_backward({dy, y, dx});
        softmax_backward({gpu_dy, on_gpu(y), gpu_dx});
        EXPECT_TRUE(matches(gpu_dx, dx, step, 1e-6));
        EXPECT_TRUE(matches(gpu_x, x, 0, 0) && matches(gpu_dy, dy, 0, 0));
        const Tensor once = on_cpu(gpu_dx), once_y = on_cpu(gpu_y);
        softmax_backward({gpu_dy, on_gpu(y), gpu_dy});
        softmax({gpu_x, gpu_x});
        EXPECT_TRUE(matches(gpu_dy, once, 0, 0) && matches(gpu_x, once_y, 0, 0));
      }
}

TEST(CudaBasicOps, SoftmaxOfExtremeRows) {
  for (const std::int64_t width : {5, 3000}) {
    const Tensor x = Tensor::zeros({4, width}, DType::f32);
    fill(x.narrow(0, 0, 1), 1e30);
    fill(x.narrow(0, 1, 1), -INFINITY);
    set_element(x, 2 * width + 4, std::nan(""));
    for (std::int64_t i = 1; i < width; ++i) set_element(x, 3 * width + i, -INFINITY);
    const Tensor gpu_x = on_gpu(x);
    softmax({gpu_x, gpu_x});
    softmax({x, x});
    EXPECT_TRUE(matches(gpu_x, x, 1e-6, 0));
    EXPECT_TRUE(std::isnan(values(on_cpu(gpu_x))[static_cast<std::size_t>(width)]));
  }
}

TEST(CudaBasicOps, GeluMatchesTheCpu) {
  std::uint32_t seed = 700;
  for (const GeluForm form : kGeluForms)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool aligned : {true, false})
        for (const Shape& shape : {Shape{1}, Shape{17}, Shape{2, 3, 16}, Shape{70, 1001}, Shape{0, 4}}) {
          SCOPED_TRACE(fmt::format("{}{} aligned {} exact {}", to_string(dtype), shape.to_string(), aligned,
                                   form == GeluForm::exact));
          Generator random(++seed);
          const Tensor x = placed(random, shape, dtype, aligned, 3.0), dy = placed(random, shape, dtype, aligned);
          const Tensor y = Tensor::empty(shape, dtype), dx = Tensor::empty(shape, dtype);
          const Tensor gpu_x = on_gpu(x), gpu_dy = on_gpu(dy), gpu_y = poisoned(shape, dtype),
                       gpu_dx = poisoned(shape, dtype);
          gelu({x, y, form});
          gelu({gpu_x, gpu_y, form});
          gelu_backward({.dy = dy, .x = x, .dx = dx, .form = form});
          gelu_backward({.dy = gpu_dy, .x = gpu_x, .dx = gpu_dx, .form = form});
          const double step = dtype == DType::bf16 ? one_step(dtype) : 4e-6;
          EXPECT_TRUE(matches(gpu_y, y, step, 1e-6));
          EXPECT_TRUE(matches(gpu_dx, dx, step, 1e-6));
          EXPECT_TRUE(matches(gpu_x, x, 0, 0) && matches(gpu_dy, dy, 0, 0));
          gelu_backward({.dy = gpu_dy, .x = gpu_x, .dx = gpu_dy, .form = form});
          EXPECT_TRUE(matches(gpu_dy, on_cpu(gpu_dx), 0, 0));
          gelu({gpu_x, gpu_x, form});
          EXPECT_TRUE(matches(gpu_x, on_cpu(gpu_y), 0, 0));
        }
}

}  // namespace
}  // namespace quench::testing
