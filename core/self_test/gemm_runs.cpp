#include "core/ops/adapters/low_rank_gemm.h"
#include "core/ops/experts/block_float8_gemm.h"
#include "core/ops/experts/grouped_float8.h"
#include "core/ops/experts/grouped_gemm.h"
#include "core/ops/gemm.h"
#include "core/ops/optimizer/symmetric_gemm.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/scaled_gemm.h"
#include "core/self_test/cases.h"
#include "core/self_test/runs.h"

namespace quench::self_test {

Outputs run_gemm(Device device) {
  const auto bf16 = [&](const Shape& shape, std::uint32_t seed) { return values(shape, DType::bf16, seed, device); };
  Outputs out{Tensor::zeros({64, 96}, DType::bf16, device), Tensor::zeros({64, 96}, DType::bf16, device),
              Tensor::zeros({128, 96}, DType::f32, device)};
  const Tensor a = bf16({64, 128}, 1);
  gemm({.a = a, .b = bf16({96, 128}, 2), .c = out[0], .transpose_b = true});
  gemm({.a = a, .b = bf16({128, 96}, 3), .c = out[1]});
  gemm({.a = a, .b = bf16({64, 96}, 4), .c = out[2], .transpose_a = true});
  return out;
}

Outputs run_few_rows(Device device) {
  const Tensor b = values({96, 256}, DType::bf16, 6, device);
  Outputs out;
  for (const std::int64_t rows : {1, 4}) {
    out.push_back(Tensor::zeros({rows, 96}, DType::bf16, device));
    gemm({.a = values({rows, 256}, DType::bf16, 5, device), .b = b, .c = out.back(), .transpose_b = true});
  }
  return out;
}

Outputs run_grouped_gemm(Device device) {
  const Tensor ends = integers({192, 512, 560}, device), x = values({576, 64}, DType::bf16, 11, device),
               b = values({3, 64, 64}, DType::bf16, 12, device), g = values({576, 64}, DType::bf16, 13, device);
  Outputs out{Tensor::zeros({576, 64}, DType::bf16, device), Tensor::zeros({576, 64}, DType::bf16, device),
              Tensor::zeros({3, 64, 64}, DType::f32, device)};
  grouped_gemm(GroupedGemmArgs{.a = x, .b = b, .ends = ends, .c = out[0], .transpose_b = true});
  grouped_gemm(GroupedGemmArgs{.a = x, .b = b, .ends = ends, .c = out[1]});
  grouped_wgrad(GroupedWgradArgs{.a = x, .b = g, .ends = ends, .c = out[2], .alignment = 16});
  return out;
}

Outputs run_grouped_float8(Device device) {
  const Tensor ends = integers({192, 512, 544}, device), x = values({576, 64}, DType::bf16, 21, device),
               w = values({3, 64, 64}, DType::bf16, 22, device), g = values({576, 64}, DType::bf16, 23, device);
  Outputs out{Tensor::zeros({576, 64}, DType::bf16, device), Tensor::zeros({3, 64, 64}, DType::f32, device)};
  const auto columns = [&](const Tensor& rows) {
    const Tensor amax = Tensor::zeros({3, 64}, DType::f32, device);
    (void)quantize_group_rows({rows, ends, {}}, true, amax);
    return quantize_group_columns({rows, ends, {}}, float8_scale(amax, ElementFormat::e4m3, true));
  };
  const Float8Options rowwise{.granularity = Granularity::row, .power_of_two_scale = true};
  grouped_gemm(GroupedFloat8GemmArgs{
      .a = quantize_float8(x, rowwise), .b = quantize_float8(w, rowwise), .ends = ends, .c = out[0]});
  grouped_wgrad(GroupedFloat8WgradArgs{.a = columns(x), .b = columns(g), .ends = ends, .c = out[1]});
  return out;
}

Outputs run_block_float8(Device device) {
  const Tensor ends = integers({128, 512, 640}, device), x = values({640, 128}, DType::bf16, 31, device),
               w = values({3, 128, 128}, DType::bf16, 32, device), g = values({640, 128}, DType::bf16, 33, device);
  Outputs out{Tensor::zeros({640, 128}, DType::bf16, device), Tensor::zeros({3, 128, 128}, DType::f32, device)};
  grouped_gemm(BlockFloat8GemmArgs{.a = quantize_block_lines(x, Orientation::natural),
                                   .b = quantize_block_squares(w, Orientation::natural),
                                   .ends = ends,
                                   .c = out[0]});
  grouped_wgrad(BlockFloat8WgradArgs{.a = quantize_block_lines(x, Orientation::transposed),
                                     .b = quantize_block_lines(g, Orientation::transposed),
                                     .ends = ends,
                                     .c = out[1]});
  return out;
}

Outputs run_float8_gemm(Device device) {
  const Tensor x = values({64, 128}, DType::bf16, 41, device), w = values({96, 128}, DType::bf16, 42, device);
  Outputs out;
  for (const Granularity granularity : {Granularity::tensor, Granularity::row}) {
    out.push_back(Tensor::zeros({64, 96}, DType::bf16, device));
    const Float8Options options{.granularity = granularity};
    gemm(ScaledGemmArgs{.a = quantize_float8(x, options), .b = quantize_float8(w, options), .c = out.back()});
  }
  return out;
}

Outputs run_int8_gemm(Device device) {
  const Float8Options options{.element = ElementFormat::int8, .granularity = Granularity::row};
  const QuantTensor x = quantize_float8(values({64, 128}, DType::bf16, 41, device), options),
                    w = quantize_float8(values({96, 128}, DType::bf16, 42, device), options);
  Outputs out{Tensor::zeros({64, 96}, DType::bf16, device), Tensor::zeros({64, 96}, DType::f32, device)};
  for (const Tensor& c : out) gemm(ScaledGemmArgs{.a = x, .b = w, .c = c});
  return out;
}

Outputs run_low_rank_gemm(Device device) {
  Outputs out{Tensor::zeros({512, 128}, DType::bf16, device)};
  low_rank_gemm({.a = values({512, 64}, DType::bf16, 51, device),
                 .b = values({128, 64}, DType::bf16, 52, device),
                 .u = values({512, 16}, DType::bf16, 53, device),
                 .c = out[0],
                 .blocks = {{.v = values({128, 16}, DType::bf16, 54, device)}},
                 .transpose_b = true});
  return out;
}

Outputs run_symmetric_gemm(Device device) {
  const Tensor a = values({1, 256, 64}, DType::bf16, 61, device);
  Outputs out{Tensor::zeros({1, 256, 256}, DType::bf16, device)};
  symmetric_gemm({.a = a, .b = a, .c = out[0]});
  return out;
}

}  // namespace quench::self_test
