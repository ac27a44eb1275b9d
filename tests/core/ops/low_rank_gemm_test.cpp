#include "core/ops/swiglu.h"
#include "tests/core/ops/low_rank_gemm_cases.h"

namespace quench {
namespace {

using namespace testing;

TEST(LowRankGemm, GivesTheProductAndTheUpdate) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool transpose : {false, true})
      for (const auto& spans : {std::vector<BlockSpan>{{0, 40, 0, 3}},           // all columns
                                {{0, 16, 0, 3}, {16, 8, 3, 2}, {24, 16, 5, 4}},  // likewise
                                {{4, 10, 2, 3}, {30, 10, 0, 2}},                 // some columns
                                {}}) {
        SCOPED_TRACE(fmt::format("{} transpose {} blocks {}", to_string(dtype), transpose, spans.size()));
        const LowRankCase c(dtype, 21, 40, 33, 9, spans, transpose);
        low_rank_gemm(c.on_cpu);
        c.check(c.on_cpu.c, 2);
      }
}

TEST(LowRankGemm, WritesTheGatedUnitOfTheResult) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const GatedActivation activation : kGatedActivations) {
      LowRankCase c(dtype, 21, 40, 33, 9, {{0, 16, 0, 3}, {16, 8, 3, 2}, {24, 16, 5, 4}}, true);
      c.on_cpu.gated = Tensor::empty({21, 20}, dtype);
      c.on_cpu.activation = activation;
      const Tensor expected = Tensor::empty({21, 20}, dtype);
      low_rank_gemm(c.on_cpu);
      c.check(c.on_cpu.c, 2);
      swiglu({.gate_up = c.on_cpu.c, .out = expected, .activation = activation});
      EXPECT_TRUE(same_bits(c.on_cpu.gated, expected));
    }
}

TEST(LowRankGemm, WritesTheGradientOfGateAndUp) {
  Generator random(7);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const GatedActivation activation : kGatedActivations) {
      LowRankCase c(dtype, 21, 40, 33, 9, {{0, 40, 0, 9}}, false);
      low_rank_gemm(c.on_cpu);
      const Tensor gate_up = random.normal({21, 80}, dtype), expected = Tensor::empty({21, 80}, dtype);
      swiglu_backward({.dout = c.on_cpu.c, .gate_up = gate_up, .dgate_up = expected, .activation = activation});
      LowRankGemmArgs args = c.on_cpu;
      args.activation = activation;
      args.c = Tensor();
      args.gate_up = args.dgate_up = gate_up;
      low_rank_gemm(args);
      EXPECT_TRUE(same_bits(gate_up, expected));
    }
}

TEST(LowRankGemm, RefusesWhatDoesNotFit) {
  const LowRankCase c(DType::f32, 5, 16, 8, 6, {{0, 8, 0, 3}, {8, 8, 3, 3}}, true);
  const auto refused = [&](auto&& spoil) {
    LowRankGemmArgs args = c.on_cpu;
    spoil(args);
    EXPECT_THROW(low_rank_gemm(args), Error);
  };
  refused([](LowRankGemmArgs& args) { args.u = Tensor::zeros({4, 6}, DType::f32); });
  refused([](LowRankGemmArgs& args) { args.u = Tensor::zeros({5, 6}, DType::bf16); });
  refused([](LowRankGemmArgs& args) { args.c = Tensor::zeros({5, 15}, DType::f32); });
  refused([](LowRankGemmArgs& args) { args.transpose_b = false; });
  refused([](LowRankGemmArgs& args) { args.blocks[1].column = 7; });      // over the block before it
  refused([](LowRankGemmArgs& args) { args.blocks[1].column = 9; });      // beyond C
  refused([](LowRankGemmArgs& args) { args.blocks[1].rank_begin = 4; });  // beyond U
  refused([](LowRankGemmArgs& args) { args.blocks[0].rank_begin = -1; });
  refused([](LowRankGemmArgs& args) { args.blocks[0].v = Tensor(); });
  refused([](LowRankGemmArgs& args) { args.gated = Tensor::zeros({5, 16}, DType::f32); });
  refused([](LowRankGemmArgs& args) { args.gated = Tensor::zeros({5, 8}, DType::bf16); });
  refused([](LowRankGemmArgs& args) { args.gate_up = args.dgate_up = Tensor::zeros({5, 32}, DType::f32); });  // and c
  const auto refused_gradient = [&](const Tensor& gate_up, const Tensor& dgate_up) {
    refused([&](LowRankGemmArgs& args) {
      args.c = Tensor();
      args.gate_up = gate_up;
      args.dgate_up = dgate_up;
    });
  };
  refused_gradient(Tensor(), Tensor::zeros({5, 32}, DType::f32));
  refused_gradient(Tensor::zeros({5, 32}, DType::f32), Tensor::zeros({5, 16}, DType::f32));
  refused_gradient(Tensor::zeros({5, 32}, DType::bf16), Tensor::zeros({5, 32}, DType::f32));
  refused_gradient(Tensor(), Tensor());
}

}  // namespace
}  // namespace quench
