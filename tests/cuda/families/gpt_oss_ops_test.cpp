// Attention sinks, clamped units and experts' biases (gpt-oss), against the CPU kernels.

#include <algorithm>

#include "core/ops/experts/group_bias.h"
#include "core/ops/experts/token_permutation.h"
#include "tests/cuda/attention_problem.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

// cuDNN where it takes the call (uniform and packed bf16), else the tiled kernels.
TEST(CudaGptOssOps, SinksAfterEveryAttentionKernel) {
  Generator random(50);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t window : {0, 70})
      for (const Lengths& lengths :
           {Lengths{{256, 256}, {256, 256}}, Lengths{{130, 130}, {65, 65}}, Lengths{{9, 100}, {3, 0}}})
        for (const std::int64_t gap : {0, 2}) {
          const bool as_many = std::ranges::all_of(lengths, [](const auto& l) { return l.first == l.second; });
          AttentionRun(random, {.heads = 8,
                                .kv_heads = 2,
                                .dim = 64,
                                .dtype = dtype,
                                .window = window,
                                .sinks = true,
                                .views = as_many ? Views::fused : Views::plain,
                                .lengths = lengths,
                                .gap = gap})
              .check();
        }
}

TEST(CudaGptOssOps, SinksWithoutLse) {
  Generator random(51);
  const Calls decode("attention.decode");
  std::int64_t calls = 0;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t dim : {64, 128, 256})
      for (const std::int64_t window : {0, 128})
        for (const auto& [queries, keys] : {std::pair{1, 4000}, {1, 300}, {3, 640}, {8, 5000}}) {
          AttentionRun(random, {.heads = 8,
                                .kv_heads = 2,
                                .dim = dim,
                                .dtype = dtype,
                                .window = window,
                                .sinks = true,
                                .lengths = {{queries, keys}}})
              .check_without_lse();
          ++calls;
        }
  EXPECT_EQ(decode.count(), calls);
  AttentionRun(random, {.heads = 8, .kv_heads = 2, .dim = 64, .sinks = true, .lengths = {{100, 100}}})
      .check_without_lse();
}

struct SortedOnBoth {
  Tensor ends, rows, pairs, gpu_ends, gpu_pairs;
  SortedOnBoth(const Tensor& experts, std::int64_t count, std::int64_t alignment)
      : ends(Tensor::empty({count}, DType::i32)),
        rows(Tensor::empty(experts.shape(), DType::i32)),
        pairs(Tensor::empty({permuted_row_capacity(experts.numel(), count, alignment)}, DType::i32)) {
    token_permutation({experts, alignment, Tensor::empty({count}, DType::f32), ends, rows, pairs});
    gpu_ends = on_gpu(ends);
    gpu_pairs = on_gpu(pairs);
  }
};

TEST(CudaGptOssOps, ClampedUnits) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [tokens, choices, width] : {std::tuple{20, 3, 19}, {300, 4, 2880}}) {
      SCOPED_TRACE(fmt::format("{} {} x {} of {}", to_string(dtype), tokens, choices, width));
      Generator random(52);
      const SortedOnBoth r(random.integers(tokens * choices, 6).view({tokens, choices}), 6, 16);
      const std::int64_t n = r.pairs.size(0);
      const ClampedUnit unit{.limit = 3.0f};
      const Tensor gate_up = random.normal({n, 2 * width}, dtype, 3.0), dout = random.normal({n, width}, dtype);
      const Tensor weights = random.normal({tokens, choices}, DType::f32);
      const Tensor out = Tensor::empty({n, width}, dtype), dgate_up = Tensor::empty(gate_up.shape(), dtype),
                   dweights = Tensor::empty(weights.shape(), DType::f32);
      expert_swiglu({.gate_up = gate_up, .weights = weights, .pairs = r.pairs, .out = out, .clamped = unit});
      expert_swiglu_backward({.dout = dout,
                              .gate_up = gate_up,
                              .weights = weights,
                              .pairs = r.pairs,
                              .dgate_up = dgate_up,
                              .dweights = dweights,
                              .out = {},
                              .clamped = unit});
      const Tensor gpu_gate_up = on_gpu(gate_up), gpu_weights = on_gpu(weights), gpu_out = poisoned(out.shape(), dtype),
                   gpu_dgate_up = poisoned(gate_up.shape(), dtype),
                   gpu_dweights = poisoned(weights.shape(), DType::f32), again = poisoned(out.shape(), dtype);
      expert_swiglu(
          {.gate_up = gpu_gate_up, .weights = gpu_weights, .pairs = r.gpu_pairs, .out = gpu_out, .clamped = unit});
      expert_swiglu_backward({.dout = on_gpu(dout),
                              .gate_up = gpu_gate_up,
                              .weights = gpu_weights,
                              .pairs = r.gpu_pairs,
                              .dgate_up = gpu_dgate_up,
                              .dweights = gpu_dweights,
                              .out = again,
                              .clamped = unit});
      const double step = dtype == DType::bf16 ? one_step(dtype) : 2e-6;
      EXPECT_TRUE(matches(gpu_out, out, step, 1e-6));
      EXPECT_TRUE(matches(gpu_dgate_up, dgate_up, step, 1e-5));
      // Sums over a row.
      EXPECT_TRUE(matches(gpu_dweights, dweights, 1e-4, 1e-6 * static_cast<double>(width)));
      EXPECT_TRUE(same_bits(on_cpu(again), on_cpu(gpu_out)));
    }
}

TEST(CudaGptOssOps, BiasesOfExperts) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool weighted : {false, true})
      for (const auto& [tokens, choices, width] : {std::tuple{20, 3, 19}, {300, 4, 2880}, {0, 2, 64}}) {
        SCOPED_TRACE(fmt::format("{} {} {} x {} of {}", to_string(dtype), weighted, tokens, choices, width));
        constexpr std::int64_t kExperts = 7;
        Generator random(53);
        // No token goes to the last expert.
        const SortedOnBoth r(random.integers(tokens * choices, kExperts - 1).view({tokens, choices}), kExperts, 16);
        const std::int64_t n = r.pairs.size(0);
        const Tensor y = random.normal({n, width}, dtype), dy = random.normal({n, width}, dtype),
                     bias = random.normal({kExperts, width}, dtype);
        const Tensor weights = weighted ? random.normal({tokens, choices}, DType::f32) : Tensor();
        for (const DType gradient : {DType::f32, dtype}) {
          const Tensor sums = y.clone(), gpu_sums = on_gpu(y), dbias = random.normal({kExperts, width}, gradient),
                       gpu_dbias = on_gpu(dbias);
          const Tensor dweights = weighted ? Tensor::empty(weights.shape(), DType::f32) : Tensor(),
                       gpu_dweights = weighted ? poisoned(weights.shape(), DType::f32) : Tensor(),
                       gpu_weights = weighted ? on_gpu(weights) : Tensor();
          add_group_bias({.y = sums, .bias = bias, .ends = r.ends, .pairs = r.pairs, .weights = weights});
          add_group_bias(
              {.y = gpu_sums, .bias = on_gpu(bias), .ends = r.gpu_ends, .pairs = r.gpu_pairs, .weights = gpu_weights});
          EXPECT_TRUE(matches(gpu_sums, sums, dtype == DType::bf16 ? one_step(dtype) : 1e-6, 1e-6));
          group_bias_backward({.dy = dy,
                               .bias = bias,
                               .ends = r.ends,
                               .pairs = r.pairs,
                               .weights = weights,
                               .dbias = dbias,
                               .accumulate = true,
                               .dweights = dweights});
          group_bias_backward({.dy = on_gpu(dy),
                               .bias = on_gpu(bias),
                               .ends = r.gpu_ends,
                               .pairs = r.gpu_pairs,
                               .weights = gpu_weights,
                               .dbias = gpu_dbias,
                               .accumulate = true,
                               .dweights = gpu_dweights});
          EXPECT_TRUE(matches(gpu_dbias, dbias, gradient == DType::bf16 ? one_step(gradient) : 1e-5, 1e-4));
          if (weighted) {
            EXPECT_TRUE(matches(gpu_dweights, dweights, 1e-4, 1e-6 * static_cast<double>(width)));
          }
        }
      }
}

}  // namespace
}  // namespace quench::testing
