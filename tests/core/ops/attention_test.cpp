#include "core/ops/attention.h"

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

struct Problem {
  Tensor q, k, v, dout;
  std::vector<SequenceRange> sequences;
  bool causal;
  float scale;
  std::int64_t window = 0;
  float soft_cap = 0;
  Tensor sinks{};
};

struct AttentionReference {
  std::vector<double> out, lse, dq, dk, dv, dsinks;
};

AttentionReference reference(const Problem& p) {
  const std::int64_t nq = p.q.size(0), heads = p.q.size(1), dim = p.q.size(2), kv_heads = p.k.size(1);
  const auto q = values(p.q), k = values(p.k), v = values(p.v), dout = values(p.dout);
  AttentionReference r{
      std::vector<double>(q.size()), std::vector<double>(static_cast<std::size_t>(heads * nq), -INFINITY),
      std::vector<double>(q.size()), std::vector<double>(k.size()),
      std::vector<double>(k.size()), std::vector<double>(static_cast<std::size_t>(heads))};
  std::vector<double> s, weight;
  for (const SequenceRange& range : p.sequences)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < range.q_length; ++i) {
        std::int64_t visible = range.k_length;
        if (p.causal) visible = std::clamp<std::int64_t>(i + 1 + range.k_length - range.q_length, 0, range.k_length);
        if (visible == 0) continue;
        const std::int64_t unseen = p.window == 0 ? 0 : std::max<std::int64_t>(0, visible - p.window);
        const std::int64_t kv = h / (heads / kv_heads);
        const auto q_at = static_cast<std::size_t>(((range.q_begin + i) * heads + h) * dim);
        const auto k_at = [&](std::int64_t j) {
          return static_cast<std::size_t>(((range.k_begin + j) * kv_heads + kv) * dim);
        };
        const auto dot = [&](const std::vector<double>& a, std::size_t x, const std::vector<double>& b, std::size_t y) {
          double sum = 0;
          for (std::size_t d = 0; d < static_cast<std::size_t>(dim); ++d) sum += a[x + d] * b[y + d];
          return sum;
        };
        s.assign(static_cast<std::size_t>(visible), 0);
        double best = -INFINITY, sum = 0;
        const auto score = [&](std::int64_t j) {
          const double plain = static_cast<double>(p.scale) * dot(q, q_at, k, k_at(j)), cap = p.soft_cap;
          return cap > 0 ? cap * std::tanh(plain / cap) : plain;
        };
        for (std::int64_t j = unseen; j < visible; ++j)
          best = std::max(best, s[static_cast<std::size_t>(j)] = score(j));
        for (std::int64_t j = 0; j < visible; ++j) {
          double& x = s[static_cast<std::size_t>(j)];
          sum += x = j < unseen ? 0 : std::exp(x - best);
        }
        double sink = 0;
        if (p.sinks.defined()) {
          const double own = p.sinks.data<float>()[h], top = std::max(best, own);
          for (double& x : s) x *= std::exp(best - top);
          sum = sum * std::exp(best - top) + (sink = std::exp(own - top));
          best = top;
          sink /= sum;
        }
        r.lse[static_cast<std::size_t>(h * nq + range.q_begin + i)] = best + std::log(sum);
        double delta = 0;
        for (std::int64_t j = 0; j < visible; ++j) {
          const double w = s[static_cast<std::size_t>(j)] /= sum;
          for (std::int64_t d = 0; d < dim; ++d) {
            r.out[q_at + static_cast<std::size_t>(d)] += w * v[k_at(j) + static_cast<std::size_t>(d)];
            r.dv[k_at(j) + static_cast<std::size_t>(d)] += w * dout[q_at + static_cast<std::size_t>(d)];
          }
          delta += w * dot(dout, q_at, v, k_at(j));
        }
        r.dsinks[static_cast<std::size_t>(h)] -= sink * delta;
        for (std::int64_t j = 0; j < visible; ++j) {
          const double bounded = p.soft_cap > 0 ? score(j) / static_cast<double>(p.soft_cap) : 0;
          const double ds = s[static_cast<std::size_t>(j)] * (dot(dout, q_at, v, k_at(j)) - delta) *
                            static_cast<double>(p.scale) * (1 - bounded * bounded);
          for (std::int64_t d = 0; d < dim; ++d) {
            r.dq[q_at + static_cast<std::size_t>(d)] += ds * k[k_at(j) + static_cast<std::size_t>(d)];
            r.dk[k_at(j) + static_cast<std::size_t>(d)] += ds * q[q_at + static_cast<std::size_t>(d)];
          }
        }
      }
  return r;
}

struct Result {
  Tensor out, lse, dq, dk, dv, dsinks;
  explicit Result(const Problem& p)
      : out(Tensor::empty(p.q.shape(), p.q.dtype())),
        lse(Tensor::empty({p.q.size(1), p.q.size(0)}, DType::f32)),
        dq(Tensor::empty(p.q.shape(), p.q.dtype())),
        dk(Tensor::empty(p.k.shape(), p.q.dtype())),
        dv(Tensor::empty(p.k.shape(), p.q.dtype())),
        dsinks(Tensor::empty({p.q.size(1)}, DType::f32)) {
    for (const Tensor& t : {out, lse, dq, dk, dv, dsinks}) testing::fill(t, std::nan(""));
  }
  void forward(const Problem& p) const {
    attention({.q = p.q,
               .k = p.k,
               .v = p.v,
               .out = out,
               .lse = lse,
               .sequences = p.sequences,
               .causal = p.causal,
               .window = p.window,
               .scale = p.scale,
               .soft_cap = p.soft_cap,
               .sinks = p.sinks});
  }
  void backward(const Problem& p) const {
    attention_backward({.dout = p.dout,
                        .q = p.q,
                        .k = p.k,
                        .v = p.v,
                        .out = out,
                        .lse = lse,
                        .dq = dq,
                        .dk = dk,
                        .dv = dv,
                        .sequences = p.sequences,
                        .causal = p.causal,
                        .window = p.window,
                        .scale = p.scale,
                        .soft_cap = p.soft_cap,
                        .sinks = p.sinks,
                        .dsinks = p.sinks.defined() ? dsinks : Tensor()});
  }
};

// Queries and keys of all sequences side by side, with `gap` rows in no sequence in front.
Problem make(Generator& random, std::vector<std::pair<std::int64_t, std::int64_t>> lengths, std::int64_t heads,
             std::int64_t kv_heads, std::int64_t dim, DType dtype, bool causal, std::int64_t gap = 0) {
  Problem p{.sequences = {}, .causal = causal, .scale = 1.0f / std::sqrt(static_cast<float>(dim))};
  std::int64_t nq = gap, nk = gap;
  for (const auto& [queries, keys] : lengths) {
    p.sequences.push_back({nq, queries, nk, keys});
    nq += queries;
    nk += keys;
  }
  p.q = random.normal_view({nq, heads, dim}, dtype, 5);
  p.k = random.normal_view({nk, kv_heads, dim}, dtype, 3);
  p.v = random.normal_view({nk, kv_heads, dim}, dtype, 0);
  p.dout = random.normal({nq, heads, dim}, dtype);
  return p;
}

void check(const Problem& p) {
  SCOPED_TRACE(fmt::format("q {} k {} causal {} window {} sequences {} first {}x{}", p.q.describe(), p.k.describe(),
                           p.causal, p.window, p.sequences.size(), p.sequences.empty() ? 0 : p.sequences[0].q_length,
                           p.sequences.empty() ? 0 : p.sequences[0].k_length));
  const Result result(p);
  const AttentionReference expected = reference(p);
  result.forward(p);
  const bool bf16 = p.q.dtype() == DType::bf16;
  EXPECT_TRUE(close(result.out, expected.out, rounding(p.q.dtype()) * 1.01, bf16 ? 4e-3 : 3e-6));
  EXPECT_TRUE(close(result.lse, expected.lse, 1e-6, bf16 ? 2e-5 : 4e-6));
  result.backward(p);
  EXPECT_TRUE(close(result.dq, expected.dq, rounding(p.q.dtype()) * 1.01, bf16 ? 2e-2 : 1e-5));
  EXPECT_TRUE(close(result.dk, expected.dk, rounding(p.q.dtype()) * 1.01, bf16 ? 2e-2 : 2e-5));
  EXPECT_TRUE(close(result.dv, expected.dv, rounding(p.q.dtype()) * 1.01, bf16 ? 2e-2 : 2e-5));
  if (p.sinks.defined()) {
    // A sum of one rounded product of each row.
    const double noise = (bf16 ? 2e-2 : 1e-5) * std::sqrt(static_cast<double>(p.q.size(0)));
    EXPECT_TRUE(close(result.dsinks, expected.dsinks, 1e-5, noise));
  }
}

TEST(Attention, SoftCapOfScores) {
  Generator random(71);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const float cap : {0.4f, 3.0f, 50.0f})
      for (const std::int64_t queries : {1, 90}) {
        Problem p = make(random, {{queries, 90}}, 4, 2, 24, dtype, true);
        p.soft_cap = cap;
        check(p);
        p.window = 9;
        check(p);
      }
}

TEST(Attention, SinksOfHeads) {
  Generator random(72);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t window : {0, 9})
      for (const std::int64_t queries : {1, 90})  // sequences of one query, and of several tiles
        for (const float size : {0.0f, 1.0f, 40.0f}) {
          Problem p = make(random, {{queries, 90}, {3, 3}, {2, 0}}, 4, 2, 24, dtype, true, 2);
          p.window = window;
          p.soft_cap = queries == 1 ? 3.0f : 0.0f;
          p.sinks = random.normal({4}, DType::f32);
          for (int h = 0; h < 4; ++h) p.sinks.data<float>()[h] *= size;
          check(p);
        }
  Problem p = make(random, {{3, 3}}, 4, 2, 8, DType::f32, true);
  p.sinks = random.normal({2}, DType::f32);
  EXPECT_THROW(Result(p).forward(p), Error);
}

TEST(Attention, LengthsAroundTheTiles) {
  Generator random(1);
  for (const bool causal : {true, false})
    for (const std::int64_t length : {1, 2, 6, 7, 16, 17, 47, 48, 49, 63, 64, 65, 100, 130})
      check(make(random, {{length, length}}, 2, 1, 16, DType::f32, causal));
}

TEST(Attention, HeadDimensions) {
  Generator random(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t dim : {1, 8, 20, 32, 48, 64, 80, 96, 128, 130})
      check(make(random, {{70, 70}}, 2, 2, dim, dtype, true));
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
    check(make(random, lengths, kv_heads * random.between(1, 3), kv_heads, random.between(1, 40),
               random.coin() ? DType::f32 : DType::bf16, random.coin(), random.below(3)));
  }
}

TEST(Attention, FewHeadsAndManyQueriesAreCutInParts) {
  Generator random(4);
  check(make(random, {{500, 500}}, 2, 1, 16, DType::f32, true));
  check(make(random, {{400, 300}, {60, 60}}, 1, 1, 8, DType::bf16, true));
}

TEST(Attention, LastQueryOfACacheSeesEveryKey) {
  Generator random(5);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t queries : {1, 2, 5}) check(make(random, {{queries, 200}}, 4, 2, 32, dtype, true));
}

// The kernel of a step of generation, of one text or several.
TEST(Attention, OneQueryOfEverySequence) {
  Generator random(16);
  for (int i = 0; i < 80; ++i) {
    const std::int64_t kv_heads = random.between(1, 3);
    std::vector<std::pair<std::int64_t, std::int64_t>> lengths;
    for (std::int64_t s = random.between(1, 4); s > 0; --s)
      lengths.emplace_back(random.below(8) > 0 ? 1 : 0, random.between(0, 200));
    Problem p = make(random, lengths, kv_heads * random.between(1, 4), kv_heads, random.between(1, 140),
                     random.coin() ? DType::f32 : DType::bf16, random.coin(), random.below(3));
    if (p.causal && random.coin()) p.window = random.between(1, 150);
    check(p);
  }
}

TEST(Attention, WindowsAroundTheTiles) {
  Generator random(13);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t window : {1, 2, 3, 15, 16, 17, 48, 63, 64, 65, 100, 129, 200, 300}) {
      Problem p = make(random, {{200, 200}}, 2, 1, 16, dtype, true);
      p.window = window;
      check(p);
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
    Problem p =
        make(random, lengths, 4, 2, random.between(dtype == DType::f32 ? 1 : 8, 40), dtype, true, random.below(3));
    p.window = random.between(1, 120);
    check(p);
  }
}

TEST(Attention, AWindowThatReachesEveryKeyIsNone) {
  Generator random(15);
  for (const std::int64_t queries : {1, 100}) {
    Problem p = make(random, {{queries, 100}}, 2, 1, 16, DType::f32, true);
    const Result without(p), with(p);
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
  Problem p = make(random, {{40, 40}}, 1, 1, 16, DType::f32, true);
  p.scale = 100.0f;
  const Result result(p);
  result.forward(p);
  EXPECT_TRUE(close(result.out, reference(p).out, 1e-3, 1e-3));
}

TEST(Attention, NaNReachesTheQueriesThatSeeIt) {
  Generator random(7);
  const Problem p = make(random, {{30, 30}}, 1, 1, 16, DType::f32, true);
  p.k.data<float>()[10 * p.k.stride(0)] = NAN;
  const Result result(p);
  result.forward(p);
  for (std::int64_t i = 0; i < 30; ++i) EXPECT_EQ(std::isnan(result.out.data<float>()[i * 16]), i >= 10) << i;
}

TEST(Attention, BitsDoNotDependOnTheThreadCount) {
  Generator random(8);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t heads : {1, 4}) {
      const Problem p = make(random, {{400, 400}, {100, 150}}, heads, heads, 32, dtype, true);
      const Result result(p);
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
  Problem p{.q = part(fused, 0, heads),
            .k = part(fused, heads, kv_heads),
            .v = part(fused, heads + kv_heads, kv_heads),
            .dout = random.normal({n, heads, dim}, DType::f32),
            .sequences = {{0, n, 0, n}},
            .causal = true,
            .scale = 0.25f};
  Result result(p);
  result.dq = part(gradient, 0, heads);
  result.dk = part(gradient, heads, kv_heads);
  result.dv = part(gradient, heads + kv_heads, kv_heads);
  result.forward(p);
  result.backward(p);
  const AttentionReference expected = reference(p);
  EXPECT_TRUE(close(result.dq, expected.dq, 0, 1e-5));
  EXPECT_TRUE(close(result.dk, expected.dk, 0, 1e-5));
  EXPECT_TRUE(close(result.dv, expected.dv, 0, 1e-5));
}

TEST(Attention, RejectsBadArguments) {
  Generator random(10);
  const auto expect_rejected = [&](const auto& change) {
    Problem p = make(random, {{5, 5}, {6, 6}}, 4, 2, 8, DType::f32, true);
    change(p);
    const Result result(p);
    EXPECT_THROW(result.forward(p), Error);
    EXPECT_THROW(result.backward(p), Error);
  };
  expect_rejected([](Problem& p) { p.window = -1; });
  expect_rejected([](Problem& p) {
    p.window = 3;
    p.causal = false;
  });
  expect_rejected([](Problem& p) { p.sequences[1].q_length = 7; });
  expect_rejected([](Problem& p) { p.sequences[1].k_length = 7; });
  expect_rejected([](Problem& p) { p.sequences[1].q_begin = 4; });
  expect_rejected([](Problem& p) { p.sequences[0].k_begin = -1; });
  expect_rejected([](Problem& p) { p.v = Tensor::zeros({11, 2, 9}, DType::f32); });
  expect_rejected([](Problem& p) { p.q = Tensor::zeros({11, 3, 8}, DType::f32); });
  expect_rejected([](Problem& p) { p.k = p.v = Tensor::zeros({11, 2, 8}, DType::bf16); });
  Problem overlap = make(random, {{5, 5}, {6, 6}}, 4, 2, 8, DType::f32, true);
  overlap.sequences[1].k_begin = 4;
  const Result result(overlap);
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
  Problem p = make(random, {}, 2, 1, 8, DType::f32, true, 4);
  check(p);
}

}  // namespace
}  // namespace quench
