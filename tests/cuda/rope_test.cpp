#include "core/ops/rope.h"

#include <cstring>

#include "core/ops/quantize/quantize.h"
#include "tests/core/ops/rope_tables.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

const Shape kRopeShapes[] = {{1, 1, 2},   {7, 3, 8},    {50, 4, 64},    {3, 2, 100}, {200, 3, 34},
                             {9, 5, 128}, {33, 1, 256}, {100, 32, 128}, {64, 40, 64}};

TEST(CudaRope, MatchesTheCpuAndLeavesTheRestAlone) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : kRopeShapes)
      for (const Layout layout : kLayouts)
        for (const auto& [inverse, interleaved] :
             {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
          SCOPED_TRACE(fmt::format("{}{} layout {} inverse {} interleaved {}", to_string(dtype), shape.to_string(),
                                   static_cast<int>(layout), inverse, interleaved));
          Generator random(++seed);
          const Tables tables(40, shape[2] / 2);
          const Tensor positions = random.integers(shape[0], 40), x = poisoned(shape, dtype, layout);
          const Tensor expected = on_cpu(x);  // NaN around the heads
          random.fill_normal(expected);
          const Tensor gpu_x = on_gpu(expected), again = on_gpu(expected);
          rope({.x = expected,
                .cos = tables.cos,
                .sin = tables.sin,
                .positions = positions,
                .inverse = inverse,
                .interleaved = interleaved});
          for (const Tensor& target : {gpu_x, again})
            rope({.x = target,
                  .cos = on_gpu(tables.cos),
                  .sin = on_gpu(tables.sin),
                  .positions = on_gpu(positions),
                  .inverse = inverse,
                  .interleaved = interleaved});
          EXPECT_TRUE(matches(gpu_x, expected, one_step(dtype), 5e-7));
          EXPECT_TRUE(wrote_all_and_only(gpu_x));
          EXPECT_EQ(values(on_cpu(gpu_x)), values(on_cpu(again)));
        }
}

// The first elements of each head of a fused projection, as a view: GLM-4 and Phi-4 rotate a part of a head.
TEST(CudaRope, RotatesAPartOfEachHead) {
  std::uint32_t seed = 77;
  constexpr std::int64_t kRows = 37, kHeads = 5;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [dim, part] : {std::pair{128, 64}, {128, 96}, {96, 72}, {16, 6}, {80, 32}})
      for (const auto& [inverse, interleaved] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
        SCOPED_TRACE(
            fmt::format("{} {} of {} inverse {} interleaved {}", to_string(dtype), part, dim, inverse, interleaved));
        Generator random(++seed);
        const Tables tables(40, part / 2);
        const Tensor positions = random.integers(kRows, 40), fused = random.normal({kRows, (kHeads + 2) * dim}, dtype);
        const Tensor gpu_fused = on_gpu(fused);
        const auto rotate = [&, d = dim, p = part](const Tensor& matrix, const Tensor& cos, const Tensor& sin,
                                                   const Tensor& rows) {
          rope({.x = matrix.strided({kRows, kHeads, p}, {(kHeads + 2) * d, d, 1}, 0),
                .cos = cos,
                .sin = sin,
                .positions = rows,
                .inverse = inverse,
                .interleaved = interleaved});
        };
        const std::vector<double> before = values(fused);
        rotate(fused, tables.cos, tables.sin, positions);
        rotate(gpu_fused, on_gpu(tables.cos), on_gpu(tables.sin), on_gpu(positions));
        EXPECT_TRUE(matches(gpu_fused, fused, one_step(dtype), 5e-7));
        const std::vector<double> after = values(on_cpu(gpu_fused));
        const auto width = static_cast<std::size_t>((kHeads + 2) * dim);
        for (std::size_t i = 0; i < after.size(); ++i) {
          const bool rotated = i % width < static_cast<std::size_t>(kHeads * dim) &&
                               i % static_cast<std::size_t>(dim) < static_cast<std::size_t>(part);
          ASSERT_TRUE(rotated || after[i] == before[i]) << i;
        }
      }
}

TEST(CudaRope, PositionsOutsideTheTableGiveNan) {
  const Tables tables(4, 32);
  const std::int32_t given[] = {3, 4, -1, 0, 1 << 30};
  const Tensor positions = Tensor::from_values<std::int32_t>({5}, given), x = Tensor::empty({5, 2, 64}, DType::bf16);
  fill(x, 1.0);
  const Tensor gpu_x = on_gpu(x);
  rope({.x = gpu_x, .cos = on_gpu(tables.cos), .sin = on_gpu(tables.sin), .positions = on_gpu(positions)});
  const std::vector<double> result = values(on_cpu(gpu_x));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::size_t row = i / 128;
    EXPECT_EQ(std::isnan(result[i]), row != 0 && row != 3) << i;
  }
}

TEST(CudaRope, EmptyInputs) {
  const Tables tables(4, 4);
  rope({.x = Tensor::empty({0, 2, 8}, DType::f32, kGpu),
        .cos = on_gpu(tables.cos),
        .sin = on_gpu(tables.sin),
        .positions = Tensor::empty({0}, DType::i32, kGpu)});
}

// Codes under a given scale: heads that divide a tile and others, rows and columns that fill tiles and not, unrotated
// columns, positions outside the table.
TEST(CudaRope, CodesMatchCastOfRotatedMatrix) {
  struct Case {
    std::int64_t rows, heads, others, dim;
  };
  std::uint32_t seed = 170;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : {Case{16, 1, 0, 128},
                          {48, 5, 2, 128},
                          {400, 40, 8, 128},
                          {144, 3, 2, 64},
                          {144, 7, 1, 32},
                          {32, 5, 1, 16},
                          {33, 2, 1, 128},
                          {64, 2, 1, 256},
                          {64, 3, 1, 96}})
      for (const bool inverse : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} rows, {}+{} heads of {}, inverse {}", to_string(dtype), c.rows, c.heads,
                                 c.others, c.dim, inverse));
        Generator random(++seed);
        const Tables tables(40, c.dim / 2);
        const std::int64_t width = (c.heads + c.others) * c.dim;
        const Shape shape{c.rows, width};
        const Tensor host_positions = random.integers(c.rows, 40);
        const Tensor x = on_gpu(random.normal(shape, dtype)), before = x.clone(), rotated = x.clone(),
                     cos = on_gpu(tables.cos), sin = on_gpu(tables.sin), positions = on_gpu(host_positions);
        rope({.x = rotated.strided({c.rows, c.heads, c.dim}, {width, c.dim, 1}, 0),
              .cos = cos,
              .sin = sin,
              .positions = positions,
              .inverse = inverse});
        // Below the scale of the amax: some values saturate.
        const Tensor most = amax(rotated, Granularity::tensor), part = on_cpu(most).clone();
        part.data<float>()[0] *= 0.7f;
        for (const ElementFormat element : {ElementFormat::e5m2, ElementFormat::e4m3}) {
          const Tensor scale = float8_scale(on_gpu(part), element, false);
          const Float8Pair expected = cast_float8_pair(rotated, scale, element);
          const auto empty = [&](const QuantTensor& like) {
            const Tensor bytes = Tensor::empty(like.payload().shape(), like.payload().dtype());
            std::memset(bytes.raw_data(), 0xA5, static_cast<std::size_t>(bytes.nbytes()));
            return QuantTensor(like.format(), shape, dtype, on_gpu(bytes), scale);
          };
          for (const unsigned parts : {1u, 2u, 3u}) {
            QuantOutputs outputs{.amax = on_gpu(Tensor::zeros({}, DType::f32))};
            if ((parts & 1u) != 0) outputs.codes = empty(expected.natural);
            if ((parts & 2u) != 0) outputs.transposed_codes = empty(expected.transposed);
            rope_codes({.x = x,
                        .heads = c.heads,
                        .cos = cos,
                        .sin = sin,
                        .positions = positions,
                        .inverse = inverse,
                        .quant_outputs = outputs});
            if (outputs.codes.defined()) {
              EXPECT_TRUE(same_bits(on_cpu(outputs.codes.payload()), on_cpu(expected.natural.payload())));
            }
            if (outputs.transposed_codes.defined()) {
              EXPECT_TRUE(same_bits(on_cpu(outputs.transposed_codes.payload()), on_cpu(expected.transposed.payload())));
            }
            EXPECT_TRUE(same_bits(on_cpu(outputs.amax), on_cpu(most)));
          }
        }
        EXPECT_TRUE(same_bits(on_cpu(x), on_cpu(before)));
      }
}

TEST(CudaRope, CodesOfPositionsOutsideTheTableAreNan) {
  const Tables tables(4, 64);
  const Shape shape{16, 256};
  std::vector<std::int32_t> given(16, 3);
  given[5] = 4;
  given[9] = -1;
  const Tensor positions = on_gpu(Tensor::from_values<std::int32_t>({16}, given)),
               x = on_gpu(Generator(5).normal(shape, DType::bf16)), scale = on_gpu(Tensor::zeros({}, DType::f32));
  const Tensor bytes = on_gpu(Tensor::zeros(shape, payload_dtype(ElementFormat::e4m3)));
  const QuantTensor codes(code_format(ElementFormat::e4m3, Granularity::tensor), shape, DType::bf16, bytes, scale);
  rope_codes({.x = x,
              .heads = 1,
              .cos = on_gpu(tables.cos),
              .sin = on_gpu(tables.sin),
              .positions = positions,
              .quant_outputs = {.codes = codes}});
  const Tensor result = on_cpu(bytes);
  const auto* byte = static_cast<const std::uint8_t*>(result.raw_data());
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    const bool nan = (byte[i] & 0x7Fu) == 0x7Fu, outside = i % 256 < 128 && (i / 256 == 5 || i / 256 == 9);
    ASSERT_EQ(nan, outside) << i;
  }
}

}  // namespace
}  // namespace quench::testing
