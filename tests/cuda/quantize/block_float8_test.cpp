// Blockwise float8 on the GPU: casts bit for bit as on the CPU, products within the noise of the tensor cores' sums.

#include "core/ops/experts/block_float8_gemm.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

BlockFloat8 moved(const BlockFloat8& x) {
  return {on_gpu(x.codes), on_gpu(x.scales)};
}

void expect_same(const BlockFloat8& gpu, const BlockFloat8& cpu) {
  EXPECT_TRUE(same_bits(on_cpu(gpu.codes), cpu.codes));
  EXPECT_TRUE(same_bits(on_cpu(gpu.scales), cpu.scales));
}

TEST(CudaBlockFloat8, CastsAndValuesMatchCpu) {
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const Orientation orientation : {Orientation::natural, Orientation::transposed})
      for (const Shape& shape : {Shape{128, 128}, Shape{300, 200}, Shape{7, 1000}, Shape{513, 8}, Shape{1, 1}}) {
        SCOPED_TRACE(fmt::format("{} {} {}", to_string(dtype), shape.to_string(),
                                 orientation == Orientation::natural ? "rows" : "columns"));
        Generator random(static_cast<std::uint32_t>(shape.numel()));
        const Tensor x = random.normal(shape, dtype, 3.0);
        const BlockFloat8 lines = quantize_block_lines(x, orientation);
        expect_same(quantize_block_lines(on_gpu(x), orientation), lines);
        const Tensor values = Tensor::empty(shape, DType::f32), on_device = on_gpu(values);
        block_float8_values({lines, values, orientation});
        block_float8_values({moved(lines), on_device, orientation});
        EXPECT_TRUE(same_bits(on_cpu(on_device), values));

        const Shape batch{3, shape[0], shape[1]};
        const Tensor matrices = random.normal(batch, dtype, 0.1);
        const BlockFloat8 squares = quantize_block_squares(matrices, orientation);
        expect_same(quantize_block_squares(on_gpu(matrices), orientation), squares);
        const Tensor all = Tensor::empty(batch, DType::f32), all_on_device = on_gpu(all);
        block_float8_values({squares, all, orientation});
        block_float8_values({moved(squares), all_on_device, orientation});
        EXPECT_TRUE(same_bits(on_cpu(all_on_device), all));
      }
}

struct Groups {
  std::vector<std::int32_t> ends;  // multiples of 128
  std::int64_t rows, in, out;
};

// The tensor cores keep about 14 bits of a block's sum: off by 2^-12 of the magnitudes at most, the CPU's by nothing
// next to it.
void expect_close(const Tensor& gpu, const Tensor& cpu, const Tensor& magnitudes) {
  const auto actual = values(on_cpu(gpu)), expected = values(cpu), most = values(magnitudes);
  const double relative = gpu.dtype() == DType::bf16 ? 0x1.0p-7 : 0x1.0p-20;
  for (std::size_t i = 0; i < actual.size(); ++i)
    ASSERT_LE(std::abs(actual[i] - expected[i]), relative * std::abs(expected[i]) + 0x1.0p-12 * most[i])
        << i << ": " << actual[i] << " and " << expected[i];
}

Tensor magnitude(const Tensor& x) {
  Tensor result = x.clone();
  for (std::int64_t i = 0; i < x.numel(); ++i) set_element(result, i, std::abs(get_element(x, i)));
  return result;
}

TEST(CudaBlockFloat8, GemmsMatchCpu) {
  for (const Groups& g : {Groups{{128, 128, 384, 640}, 768, 264, 392}, Groups{{0, 2048, 4096}, 4224, 1024, 128},
                          Groups{{128}, 128, 136, 8}, Groups{{}, 200, 384, 520}})
    for (const DType dtype : {DType::bf16, DType::f32}) {
      SCOPED_TRACE(
          fmt::format("{} rows {} -> {} {} groups {}", g.rows, g.in, g.out, fmt::join(g.ends, ","), to_string(dtype)));
      const std::int64_t experts = g.ends.empty() ? 1 : static_cast<std::int64_t>(g.ends.size());
      Generator random(41);
      const Tensor x = random.normal({g.rows, g.in}, DType::bf16), dy = random.normal({g.rows, g.out}, DType::bf16),
                   w = random.normal({experts, g.out, g.in}, DType::bf16, 0.1);
      const Tensor ends = g.ends.empty() ? Tensor() : Tensor::from_values<std::int32_t>({experts}, g.ends);
      const Tensor device_ends = ends.defined() ? on_gpu(ends) : Tensor();

      const auto forward = [&](const Tensor& left, const Tensor& right, const Tensor& of, DType out) {
        const Tensor c = Tensor::empty({g.rows, g.out}, out, left.device());
        grouped_gemm(BlockFloat8GemmArgs{.a = quantize_block_lines(left, Orientation::natural),
                                         .b = quantize_block_squares(right, Orientation::natural),
                                         .ends = of,
                                         .c = c});
        return c;
      };
      expect_close(forward(on_gpu(x), on_gpu(w), device_ends, dtype), forward(x, w, ends, dtype),
                   forward(magnitude(x), magnitude(w), ends, DType::f32));

      for (const float beta : {0.0f, 1.0f}) {
        const auto wgrad = [&](const Tensor& left, const Tensor& right, const Tensor& of, DType out) {
          const Tensor c = Tensor::zeros({experts, g.out, g.in}, DType::f32);
          fill(c, beta == 0.0f ? std::numeric_limits<double>::quiet_NaN() : 0.5);
          Tensor result = Tensor::empty(c.shape(), out, left.device());
          const Tensor start = Tensor::empty(c.shape(), out);
          for (std::int64_t i = 0; i < c.numel(); ++i) set_element(start, i, get_element(c, i));
          result.copy_from(start);
          grouped_wgrad(BlockFloat8WgradArgs{.a = quantize_block_lines(left, Orientation::transposed),
                                             .b = quantize_block_lines(right, Orientation::transposed),
                                             .ends = of,
                                             .c = result,
                                             .beta = beta});
          return result;
        };
        expect_close(wgrad(on_gpu(dy), on_gpu(x), device_ends, dtype), wgrad(dy, x, ends, dtype),
                     wgrad(magnitude(dy), magnitude(x), ends, DType::f32));
      }
    }
}

}  // namespace
}  // namespace quench::testing
