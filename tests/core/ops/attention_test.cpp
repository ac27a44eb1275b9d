#include "tests/core/ops/attention_cases.h"

namespace quench {
namespace {

using namespace testing;

TEST(Attention, SoftCapOfScores) {
  Generator random(71);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const float cap : {0.4f, 3.0f, 50.0f})
      for (const std::int64_t queries : {1, 90}) {
        AttentionProblem p = make_attention(random, {{queries, 90}}, 4, 2, 24, dtype, true);
        p.soft_cap = cap;
        check_attention(p);
        p.window = 9;
        check_attention(p);
      }
}

TEST(Attention, SinksOfHeads) {
  Generator random(72);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t window : {0, 9})
      for (const std::int64_t queries : {1, 90})  // sequences of one query, and of several tiles
        for (const float size : {0.0f, 1.0f, 40.0f}) {
          AttentionProblem p = make_attention(random, {{queries, 90}, {3, 3}, {2, 0}}, 4, 2, 24, dtype, true, 2);
          p.window = window;
          p.soft_cap = queries == 1 ? 3.0f : 0.0f;
          p.sinks = random.normal({4}, DType::f32);
          for (int h = 0; h < 4; ++h) p.sinks.data<float>()[h] *= size;
          check_attention(p);
        }
  AttentionProblem p = make_attention(random, {{3, 3}}, 4, 2, 8, DType::f32, true);
  p.sinks = random.normal({2}, DType::f32);
  EXPECT_THROW(AttentionResult(p).forward(p), Error);
}

TEST(Attention, LengthsAroundTheTiles) {
  Generator random(1);
  for (const bool causal : {true, false})
    for (const std::int64_t length : {1, 2, 6, 7, 16, 17, 47, 48, 49, 63, 64, 65, 100, 130})
      check_attention(make_attention(random, {{length, length}}, 2, 1, 16, DType::f32, causal));
}

TEST(Attention, HeadDimensions) {
  Generator random(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t dim : {1, 8, 20, 32, 48, 64, 80, 96, 128, 130})
      check_attention(make_attention(random, {{70, 70}}, 2, 2, dim, dtype, true));
}

TEST(Attention, RandomShapesGroupsAndPackedSequences) {
  Generator random(3);
  for (int i = 0; i < 60; ++i) {
    const std::int64_t kv_heads = random.between(1, 3);
    std::vector<std::pair<std::int64_t, std::int64_t>> lengths;
    for (std::int64_t s = random.between(1, 4); s > 0; --s) {
      const std::int64_t queries = random.between(0, 80);
      lengths.emplace_back(queries, random.coin() ? queries : random.between(0, 90));
    }
    check_attention(make_attention(random, lengths, kv_heads * random.between(1, 3), kv_heads, random.between(1, 40),
                                   random.coin() ? DType::f32 : DType::bf16, random.coin(), random.below(3)));
  }
}

TEST(Attention, FewHeadsAndManyQueriesAreCutInParts) {
  Generator random(4);
  check_attention(make_attention(random, {{500, 500}}, 2, 1, 16, DType::f32, true));
  check_attention(make_attention(random, {{400, 300}, {60, 60}}, 1, 1, 8, DType::bf16, true));
}

TEST(Attention, LastQueryOfACacheSeesEveryKey) {
  Generator random(5);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t queries : {1, 2, 5})
      check_attention(make_attention(random, {{queries, 200}}, 4, 2, 32, dtype, true));
}

// The kernel of a step of generation, of one text or several.
TEST(Attention, OneQueryOfEverySequence) {
  Generator random(16);
  for (int i = 0; i < 80; ++i) {
    const std::int64_t kv_heads = random.between(1, 3);
    std::vector<std::pair<std::int64_t, std::int64_t>> lengths;
    for (std::int64_t s = random.between(1, 4); s > 0; --s)
      lengths.emplace_back(random.below(8) > 0 ? 1 : 0, random.between(0, 200));
    AttentionProblem p =
        make_attention(random, lengths, kv_heads * random.between(1, 4), kv_heads, random.between(1, 140),
                       random.coin() ? DType::f32 : DType::bf16, random.coin(), random.below(3));
    if (p.causal && random.coin()) p.window = random.between(1, 150);
    check_attention(p);
  }
}

TEST(Attention, WindowsAroundTheTiles) {
  Generator random(13);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t window : {1, 2, 3, 15, 16, 17, 48, 63, 64, 65, 100, 129, 200, 300}) {
      AttentionProblem p = make_attention(random, {{200, 200}}, 2, 1, 16, dtype, true);
      p.window = window;
      check_attention(p);
    }
}

TEST(Attention, WindowsWithinPackedSequencesAndOverLongerKeys) {
  Generator random(14);
  for (int i = 0; i < 60; ++i) {
    std::vector<std::pair<std::int64_t, std::int64_t>> lengths;
    for (std::int64_t s = random.between(1, 4); s > 0; --s) {
      const std::int64_t queries = random.between(0, 150);
      lengths.emplace_back(queries, random.coin() ? queries : random.between(0, 200));
    }
    // The backward pass reads `out` as it is stored. In bf16 and with a head of one dimension, the rounding of a single
    // number is an error of all of a query's scores.
    const DType dtype = random.coin() ? DType::f32 : DType::bf16;
    // Named: compilers evaluate arguments in either order.
    const std::int64_t gap = random.below(3), dim = random.between(dtype == DType::f32 ? 1 : 8, 40);
    AttentionProblem p = make_attention(random, lengths, 4, 2, dim, dtype, true, gap);
    p.window = random.between(1, 120);
    check_attention(p);
  }
}

TEST(Attention, AWindowThatReachesEveryKeyIsNone) {
  Generator random(15);
  for (const std::int64_t queries : {1, 100}) {
    AttentionProblem p = make_attention(random, {{queries, 100}}, 2, 1, 16, DType::f32, true);
    const AttentionResult without(p), with(p);
    without.forward(p);
    without.backward(p);
    p.window = 100;
    with.forward(p);
    with.backward(p);
    EXPECT_TRUE(same_bits(with.out, without.out));
    EXPECT_TRUE(same_bits(with.dq, without.dq));
    EXPECT_TRUE(same_bits(with.dk, without.dk));
  }
}

TEST(Attention, AStepOfGenerationSeesItsWindowOnly) {
  Generator random(16);
  const Tensor q = random.normal({1, 4, 8}, DType::f32), k = random.normal({50, 2, 8}, DType::f32),
               v = random.normal({50, 2, 8}, DType::f32), last = Tensor::zeros({1}, DType::i32);
  const auto attend = [&](SequenceRange range, std::int64_t window, const Tensor& last_key) {
    const Tensor out = Tensor::empty({1, 4, 8}, DType::f32);
    attention({.q = q,
               .k = k,
               .v = v,
               .out = out,
               .sequences = std::span(&range, 1),
               .window = window,
               .last_key = last_key});
    return out;
  };
  for (const std::int32_t keys : {1, 5, 9, 10, 30, 50}) {
    const std::int64_t seen = std::min(keys, 9);
    const Tensor expected = attend({0, 1, keys - seen, seen}, 0, Tensor());
    EXPECT_TRUE(same_bits(attend({0, 1, 0, keys}, 9, Tensor()), expected)) << keys;
    *last.data<std::int32_t>() = keys - 1;
    EXPECT_TRUE(same_bits(attend({0, 1, 0, 50}, 9, last), expected)) << keys;
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Generator random(6);
  AttentionProblem p = make_attention(random, {{40, 40}}, 1, 1, 16, DType::f32, true);
  p.scale = 100.0f;
  const AttentionResult result(p);
  result.forward(p);
  EXPECT_TRUE(close(result.out, attention_reference(p).out, 1e-3, 1e-3));
}

TEST(Attention, NaNReachesTheQueriesThatSeeIt) {
  Generator random(7);
  const AttentionProblem p = make_attention(random, {{30, 30}}, 1, 1, 16, DType::f32, true);
  p.k.data<float>()[10 * p.k.stride(0)] = NAN;
  const AttentionResult result(p);
  result.forward(p);
  for (std::int64_t i = 0; i < 30; ++i) EXPECT_EQ(std::isnan(result.out.data<float>()[i * 16]), i >= 10) << i;
}

TEST(Attention, BitsDoNotDependOnTheThreadCount) {
  Generator random(8);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t heads : {1, 4}) {
      const AttentionProblem p = make_attention(random, {{400, 400}, {100, 150}}, heads, heads, 32, dtype, true);
      const AttentionResult result(p);
      EXPECT_TRUE(independent_of_threads({result.out, result.lse}, [&] { result.forward(p); }));
      EXPECT_TRUE(independent_of_threads({result.dq, result.dk, result.dv}, [&] { result.backward(p); }));
    }
}

TEST(Attention, WorksOnViewsOfAFusedProjection) {
  Generator random(9);
  const std::int64_t n = 50, heads = 4, kv_heads = 2, dim = 16, width = (heads + 2 * kv_heads) * dim;
  const Tensor fused = random.normal({n, width}, DType::f32), gradient = Tensor::zeros({n, width}, DType::f32);
  const auto part = [&](const Tensor& t, std::int64_t first, std::int64_t count) {
    return t.strided({n, count, dim}, {width, dim, 1}, first * dim);
  };
  AttentionProblem p{.q = part(fused, 0, heads),
                     .k = part(fused, heads, kv_heads),
                     .v = part(fused, heads + kv_heads, kv_heads),
                     .dout = random.normal({n, heads, dim}, DType::f32),
                     .sequences = {{0, n, 0, n}},
                     .causal = true,
                     .scale = 0.25f};
  AttentionResult result(p);
  result.dq = part(gradient, 0, heads);
  result.dk = part(gradient, heads, kv_heads);
  result.dv = part(gradient, heads + kv_heads, kv_heads);
  result.forward(p);
  result.backward(p);
  const AttentionReference expected = attention_reference(p);
  EXPECT_TRUE(close(result.dq, expected.dq, 0, 1e-5));
  EXPECT_TRUE(close(result.dk, expected.dk, 0, 1e-5));
  EXPECT_TRUE(close(result.dv, expected.dv, 0, 1e-5));
}

TEST(Attention, RejectsBadArguments) {
  Generator random(10);
  const auto expect_rejected = [&](const auto& change) {
    AttentionProblem p = make_attention(random, {{5, 5}, {6, 6}}, 4, 2, 8, DType::f32, true);
    change(p);
    const AttentionResult result(p);
    EXPECT_THROW(result.forward(p), Error);
    EXPECT_THROW(result.backward(p), Error);
  };
  expect_rejected([](AttentionProblem& p) { p.window = -1; });
  expect_rejected([](AttentionProblem& p) {
    p.window = 3;
    p.causal = false;
  });
  expect_rejected([](AttentionProblem& p) { p.sequences[1].q_length = 7; });
  expect_rejected([](AttentionProblem& p) { p.sequences[1].k_length = 7; });
  expect_rejected([](AttentionProblem& p) { p.sequences[1].q_begin = 4; });
  expect_rejected([](AttentionProblem& p) { p.sequences[0].k_begin = -1; });
  expect_rejected([](AttentionProblem& p) { p.v = Tensor::zeros({11, 2, 9}, DType::f32); });
  expect_rejected([](AttentionProblem& p) { p.q = Tensor::zeros({11, 3, 8}, DType::f32); });
  expect_rejected([](AttentionProblem& p) { p.k = p.v = Tensor::zeros({11, 2, 8}, DType::bf16); });
  AttentionProblem overlap = make_attention(random, {{5, 5}, {6, 6}}, 4, 2, 8, DType::f32, true);
  overlap.sequences[1].k_begin = 4;
  const AttentionResult result(overlap);
  result.forward(overlap);  // keys may be shared going forward
  EXPECT_THROW(result.backward(overlap), Error);
}

TEST(Attention, LastKeySaysHowManyKeysThereAre) {
  Generator random(12);
  const Tensor q = random.normal({1, 4, 8}, DType::f32), k = random.normal({20, 2, 8}, DType::f32),
               v = random.normal({20, 2, 8}, DType::f32), last = Tensor::zeros({1}, DType::i32);
  const auto attend = [&](std::int64_t keys, const Tensor& last_key) {
    const SequenceRange range{0, 1, 3, keys};
    const Tensor out = Tensor::empty({1, 4, 8}, DType::f32);
    attention({.q = q, .k = k, .v = v, .out = out, .sequences = std::span(&range, 1), .last_key = last_key});
    return out;
  };
  for (const std::int32_t n : {1, 7, 12, 15}) {
    *last.data<std::int32_t>() = n - 1;
    EXPECT_TRUE(same_bits(attend(12, last), attend(std::min(n, 12), Tensor()))) << n;  // 12 is the bound
  }
  *last.data<std::int32_t>() = -1;
  EXPECT_EQ(values(attend(12, last)), std::vector<double>(32, 0.0));
  EXPECT_THROW(attend(12, Tensor::zeros({2}, DType::i32)), Error);
  EXPECT_THROW(attend(12, Tensor::zeros({1}, DType::f32)), Error);
}

TEST(Attention, NoSequencesGiveZeros) {
  Generator random(11);
  check_attention(make_attention(random, {}, 2, 1, 8, DType::f32, true, 4));
}

}  // namespace
}  // namespace quench
