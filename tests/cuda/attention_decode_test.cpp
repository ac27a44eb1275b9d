// Attention of few queries over many keys, as generation has it.

#include "tests/cuda/attention_problem.h"

namespace quench::testing {
namespace {

TEST(CudaAttentionDecode, DecodesOverLongCaches) {
  Generator random(12);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t dim : {64, 80, 128, 256})
      for (const std::int64_t group : {1, 2, 4, 8}) {
        const Calls decode("attention.decode");
        for (const auto& [queries, keys] : {std::pair{1, 4000}, {1, 1}, {2, 63}, {3, 1031}, {8, 640}})
          AttentionRun(random,
                       {.heads = 8, .kv_heads = 8 / group, .dim = dim, .dtype = dtype, .lengths = {{queries, keys}}})
              .check_without_lse();
        EXPECT_EQ(decode.count(), 5);
      }
}

TEST(CudaAttentionDecode, TheLastKeyMayBeKnownToTheDeviceAlone) {
  Generator random(15);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t bound : {600, 3000}) {  // one part, and several
      const Tensor q = random.normal({2, 8, 64}, dtype), k = random.normal({3100, 2, 64}, dtype),
                   v = random.normal({3100, 2, 64}, dtype), last = Tensor::empty({1}, DType::i32);
      const SequenceRange range{0, 2, 5, bound};
      const auto attend = [&](const Tensor& some_q, const Tensor& some_k, const Tensor& some_v,
                              const Tensor& some_last) {
        const Tensor out = Tensor::empty(some_q.shape(), dtype, some_q.device());
        attention({.q = some_q,
                   .k = some_k,
                   .v = some_v,
                   .out = out,
                   .sequences = std::span(&range, 1),
                   .scale = 0.125f,
                   .last_key = some_last});
        return out;
      };
      for (const std::int64_t keys :
           {std::int64_t{1}, std::int64_t{2}, std::int64_t{70}, bound - 1, bound, bound + 9}) {
        *last.data<std::int32_t>() = static_cast<std::int32_t>(keys - 1);
        const Tensor out = on_cpu(attend(on_gpu(q), on_gpu(k), on_gpu(v), on_gpu(last)));
        EXPECT_TRUE(close(out, values(attend(q, k, v, last)), 2 * rounding(dtype), dtype == DType::f32 ? 1e-5 : 1e-2))
            << keys << " of " << bound;
      }
    }
  // No other backend takes it.
  const SequenceRange many{0, 30, 0, 30};
  const Tensor x = on_gpu(random.normal({30, 2, 64}, DType::bf16)), last = Tensor::zeros({1}, DType::i32, kGpu);
  EXPECT_THROW(
      attention(
          {.q = x, .k = x, .v = x, .out = Tensor::empty_like(x), .sequences = std::span(&many, 1), .last_key = last}),
      Error);
}

TEST(CudaAttentionDecode, DecodesWithinAWindow) {
  Generator random(16);
  const Calls decode("attention.decode");
  std::int64_t calls = 0;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t window : {1, 7, 64, 1000, 1024, 1500, 5000})
      for (const auto& [queries, keys] : {std::pair{1, 4000}, {1, 1}, {3, 1031}, {8, 3000}}) {
        AttentionRun(
            random,
            {.heads = 8, .kv_heads = 2, .dim = 128, .dtype = dtype, .window = window, .lengths = {{queries, keys}}})
            .check_without_lse();
        ++calls;
      }
  EXPECT_EQ(decode.count(), calls);
  AttentionRun(random, {.heads = 28,
                        .kv_heads = 4,
                        .dim = 128,
                        .window = 90,
                        .lengths = {{1, 900}, {4, 100}, {1, 7}, {5, 3}, {0, 50}, {8, 2000}},
                        .gap = 1})
      .check_without_lse();
}

TEST(CudaAttentionDecode, TheWindowEndsAtAKeyThatTheDeviceAloneKnows) {
  Generator random(17);
  for (const std::int64_t window : {1, 50, 1200}) {
    const Tensor q = random.normal({1, 8, 64}, DType::f32), k = random.normal({3000, 2, 64}, DType::f32),
                 v = random.normal({3000, 2, 64}, DType::f32), last = Tensor::empty({1}, DType::i32);
    const SequenceRange range{0, 1, 0, 3000};
    const auto attend = [&](const Tensor& some_q, const Tensor& some_k, const Tensor& some_v, const Tensor& some_last) {
      const Tensor out = Tensor::empty(some_q.shape(), DType::f32, some_q.device());
      attention({.q = some_q,
                 .k = some_k,
                 .v = some_v,
                 .out = out,
                 .sequences = std::span(&range, 1),
                 .window = window,
                 .scale = 0.125f,
                 .last_key = some_last});
      return out;
    };
    for (const std::int32_t keys : {1, 49, 50, 51, 1200, 1201, 2999, 3000}) {
      *last.data<std::int32_t>() = keys - 1;
      const Tensor out = on_cpu(attend(on_gpu(q), on_gpu(k), on_gpu(v), on_gpu(last)));
      EXPECT_TRUE(close(out, values(attend(q, k, v, last)), 2 * rounding(DType::f32), 1e-5)) << keys;
    }
  }
}

TEST(CudaAttentionDecode, DecodesSeveralSequences) {
  Generator random(13);
  for (const bool causal : {true, false}) {
    const Calls decode("attention.decode");
    AttentionRun(random, {.heads = 28,
                          .kv_heads = 4,
                          .dim = 128,
                          .causal = causal,
                          .lengths = {{1, 900}, {4, 100}, {1, 7}, {5, 3}, {0, 50}, {8, 2000}},
                          .gap = 1})
        .check_without_lse();
    // More rows than SMs: those of a kv head, two to eight, share a block.
    for (const std::int64_t kv_heads : {1, 2, 4}) {
      AttentionProblem many{.heads = 8, .kv_heads = kv_heads, .dtype = DType::f32, .causal = causal};
      for (int i = 0; i < 130; ++i) many.lengths.emplace_back(1, random.between(1, 300));
      AttentionRun(random, many).check_without_lse();
    }
    EXPECT_EQ(decode.count(), 4);
  }
}

}  // namespace
}  // namespace quench::testing
