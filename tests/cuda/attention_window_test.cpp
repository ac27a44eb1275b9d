// Attention within a sliding window.

#include "tests/cuda/attention_problem.h"

namespace quench::testing {
namespace {

TEST(CudaAttentionWindow, Tiled) {
  Generator random(19);
  const Calls tiled("attention.tiled"), backward("attention_backward.tiled");
  std::int64_t calls = 0;
  for (const std::int64_t dim : {32, 128, 256})
    for (const std::int64_t window : {1, 2, 31, 32, 33, 63, 64, 65, 128, 129, 199, 200, 1000}) {
      AttentionRun(random, {.heads = 4,
                            .kv_heads = 2,
                            .dim = dim,
                            .dtype = DType::f32,
                            .window = window,
                            .views = Views::fused,
                            .lengths = {{200, 200}, {70, 70}}})
          .check();
      ++calls;
    }
  EXPECT_EQ(tiled.count(), calls);
  EXPECT_EQ(backward.count(), calls);
}

TEST(CudaAttentionWindow, TiledRandomShapes) {
  Generator random(20);
  for (int i = 0; i < 40; ++i) {
    AttentionProblem p{.kv_heads = random.between(1, 3),
                       .dim = random.between(1, 140),
                       .dtype = random.coin() ? DType::f32 : DType::bf16,
                       .window = random.between(1, 200),
                       .views = Views::unaligned,
                       .gap = random.below(3)};
    p.heads = p.kv_heads * random.between(1, 4);
    for (std::int64_t s = random.between(1, 4); s > 0; --s) {
      const std::int64_t queries = random.between(0, 150);
      p.lengths.emplace_back(queries, random.coin() ? queries : random.between(0, 300));
    }
    AttentionRun(random, p).check();
  }
}

// Any backend: cuDNN where it takes a window.
TEST(CudaAttentionWindow, UniformAndPackedSequences) {
  Generator random(21);
  for (const std::int64_t window : {1, 64, 100, 255, 256, 4096})
    for (const Lengths& lengths : {Lengths{{256, 256}, {256, 256}}, Lengths{{200, 200}, {31, 31}, {256, 256}}})
      AttentionRun(random,
                   {.heads = 8, .kv_heads = 2, .dim = 128, .window = window, .views = Views::fused, .lengths = lengths})
          .check();
}

// As long a window as the sequences gives the same bits as none.
TEST(CudaAttentionWindow, OneThatReachesEveryKeyIsNone) {
  Generator random(22);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    AttentionProblem problem{
        .heads = 4, .kv_heads = 2, .dim = 64, .dtype = dtype, .views = Views::fused, .lengths = {{256, 256}}};
    const AttentionRun run(random, problem);
    run.forward(run.gpu());
    const Tensor without = on_cpu(run.gpu().out);
    const AttentionTensors& t = run.gpu();
    const SequenceRange range{0, 256, 0, 256};
    attention({.q = t.q,
               .k = t.k,
               .v = t.v,
               .out = t.out,
               .lse = t.lse,
               .sequences = std::span(&range, 1),
               .window = 256,
               .scale = 0.125f});
    EXPECT_TRUE(same_bits(on_cpu(t.out), without));
  }
}

}  // namespace
}  // namespace quench::testing
