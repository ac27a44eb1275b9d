#include "core/ops/swiglu.h"
#include "tests/core/ops/low_rank_gemm_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

LowRankGemmArgs moved_to_gpu(const LowRankGemmArgs& args) {
  LowRankGemmArgs result{.a = on_gpu(args.a),
                         .b = on_gpu(args.b),
                         .u = on_gpu(args.u),
                         .c = on_gpu(args.c),
                         .blocks = args.blocks,
                         .transpose_b = args.transpose_b,
                         .gated = on_gpu(args.gated),
                         .activation = args.activation};
  for (LowRankBlock& block : result.blocks) block.v = on_gpu(block.v);
  return result;
}

void expect_product_and_update(const LowRankCase& c, double roundings) {
  const LowRankGemmArgs args = moved_to_gpu(c.on_cpu);
  low_rank_gemm(args);
  c.check(on_cpu(args.c), roundings);
}

struct Problem {
  std::int64_t m, n, k, all_ranks;
  std::vector<BlockSpan> spans;
};

std::string op_label_of(const Problem& p, GatedActivation activation) {
  return fmt::format("m {} n {} k {} blocks {} activation {}", p.m, p.n, p.k, p.spans.size(),
                     static_cast<int>(activation));
}

// One rounding: whole tiles and parts of them, blocks that begin and end within tiles, ranks of several steps, more
// tiles than SMs.
TEST(CudaLowRankGemm, GivesTheProductAndTheUpdate) {
  for (const Problem& p : {Problem{512, 256, 64, 16, {{0, 256, 0, 16}}},
                           {600, 520, 200, 64, {{0, 40, 0, 8}, {40, 320, 8, 24}, {360, 160, 32, 32}}},
                           {520, 776, 8, 104, {{8, 512, 0, 104}}},
                           {777, 264, 136, 96, {{0, 128, 8, 80}, {136, 128, 0, 8}}},
                           {513, 264, 72, 8, {}},
                           {2100, 1800, 40, 48, {{0, 1024, 0, 16}, {1024, 256, 16, 16}, {1280, 520, 32, 16}}}})
    for (const bool transpose : {false, true}) {
      SCOPED_TRACE(fmt::format("m {} n {} k {} blocks {} transpose {}", p.m, p.n, p.k, p.spans.size(), transpose));
      expect_product_and_update(LowRankCase(DType::bf16, p.m, p.n, p.k, p.all_ranks, p.spans, transpose), 1);
    }
}

// The bits of the ops one after the other, and their values: with tiles of both halves, and where halves are no tiles.
TEST(CudaLowRankGemm, WritesTheGatedUnitOfTheResult) {
  for (const GatedActivation activation : kGatedActivations)
    for (const Problem& p : {Problem{512, 256, 64, 16, {{0, 256, 0, 16}}},
                             {600, 768, 200, 64, {{0, 40, 0, 8}, {40, 320, 8, 24}, {408, 360, 32, 32}}},
                             {2100, 2560, 72, 32, {{0, 1280, 0, 16}, {1280, 1280, 16, 16}}},
                             {777, 264, 136, 96, {{0, 128, 8, 80}, {136, 128, 0, 8}}}}) {
      SCOPED_TRACE(op_label_of(p, activation));
      LowRankCase c(DType::bf16, p.m, p.n, p.k, p.all_ranks, p.spans, true);
      c.on_cpu.gated = Tensor::empty({p.m, p.n / 2}, DType::bf16);
      c.on_cpu.activation = activation;
      const LowRankGemmArgs args = moved_to_gpu(c.on_cpu);
      low_rank_gemm(args);
      c.check(on_cpu(args.c), 1);
      const Tensor expected = Tensor::empty(args.gated.shape(), DType::bf16, kGpu);
      swiglu({.gate_up = args.c, .out = expected, .activation = activation});
      EXPECT_TRUE(same_bits(on_cpu(args.gated), on_cpu(expected)));
    }
}

// The bits of the ops one after the other, in a matrix of its own and in place: parts of tiles, more stages than a
// tile's results need and fewer, more tiles than SMs, and halves that are no boxes.
TEST(CudaLowRankGemm, WritesTheGradientOfGateAndUp) {
  Generator random(11);
  for (const GatedActivation activation : kGatedActivations)
    for (const Problem& p : {Problem{512, 256, 64, 16, {{0, 256, 0, 16}}},
                             {600, 320, 2304, 24, {{0, 320, 0, 24}}},
                             {777, 1088, 200, 64, {{0, 1088, 0, 64}}},
                             {4500, 2048, 2048, 16, {{0, 2048, 0, 16}}},
                             {600, 264, 72, 8, {{0, 264, 0, 8}}}}) {
      SCOPED_TRACE(op_label_of(p, activation));
      LowRankGemmArgs args{.a = on_gpu(random.normal({p.m, p.k}, DType::bf16)),
                           .b = on_gpu(random.normal({p.k, p.n}, DType::bf16)),
                           .u = on_gpu(random.normal({p.m, p.all_ranks}, DType::bf16)),
                           .c = Tensor::empty({p.m, p.n}, DType::bf16, kGpu),
                           .blocks = {{on_gpu(random.normal({p.all_ranks, p.n}, DType::bf16))}},
                           .activation = activation};
      low_rank_gemm(args);
      const Tensor gate_up = on_gpu(random.normal({p.m, 2 * p.n}, DType::bf16));
      const Tensor expected = Tensor::empty(gate_up.shape(), DType::bf16, kGpu);
      swiglu_backward({.dout = args.c, .gate_up = gate_up, .dgate_up = expected, .activation = activation});
      args.c = Tensor();
      args.gate_up = gate_up;
      args.dgate_up = Tensor::empty(gate_up.shape(), DType::bf16, kGpu);
      low_rank_gemm(args);
      EXPECT_TRUE(same_bits(on_cpu(args.dgate_up), on_cpu(expected)));
      args.dgate_up = gate_up;
      low_rank_gemm(args);
      EXPECT_TRUE(same_bits(on_cpu(gate_up), on_cpu(expected)));
    }
}

// Sizes and dtypes without tiles.
TEST(CudaLowRankGemm, OtherSizesAndDtypes) {
  for (const bool transpose : {false, true}) {
    for (const DType dtype : {DType::f32, DType::bf16})
      expect_product_and_update(LowRankCase(dtype, 40, 48, 24, 16, {{0, 24, 0, 8}, {24, 24, 8, 8}}, transpose), 3);
    expect_product_and_update(LowRankCase(DType::bf16, 600, 72, 24, 7, {{0, 72, 2, 5}}, transpose), 3);
    expect_product_and_update(LowRankCase(DType::bf16, 600, 73, 24, 8, {{3, 24, 0, 8}}, transpose), 3);
  }
}

TEST(CudaLowRankGemm, TheSameBitsAgain) {
  Generator random(3);
  const auto operand = [&](const Shape& shape) { return on_gpu(random.normal(shape, DType::bf16)); };
  LowRankGemmArgs args{.a = operand({4096, 512}),
                       .b = operand({2048, 512}),
                       .u = operand({4096, 32}),
                       .c = Tensor::empty({4096, 2048}, DType::bf16, kGpu),
                       .blocks = {{operand({1024, 16}), 0, 0}, {operand({1024, 16}), 1024, 16}},
                       .transpose_b = true};
  low_rank_gemm(args);
  const Tensor first = on_cpu(args.c);
  for (int repeat = 0; repeat < 5; ++repeat) {
    args.c = Tensor::empty({4096, 2048}, DType::bf16, kGpu);
    low_rank_gemm(args);
    EXPECT_TRUE(same_bits(first, on_cpu(args.c)));
  }
}

}  // namespace
}  // namespace quench::testing
