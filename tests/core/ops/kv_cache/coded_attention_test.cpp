#include "core/ops/kv_cache/coded_attention.h"

#include "core/ops/kv_cache/cached_attention.h"
#include "core/ops/rope.h"
#include "tests/core/ops/attention_cases.h"
#include "tests/core/ops/kv_cache/cache_cases.h"
#include "tests/core/ops/rope_tables.h"

namespace quench {
namespace {

using testing::close;
using testing::CodedCache;
using testing::CodedProblem;
using testing::Generator;
using testing::kCacheCodes;
using testing::make_coded;
using testing::rounding;
using testing::values;

using Lengths = std::vector<std::pair<std::int64_t, std::int64_t>>;

// Float64 attention over the decoded cache.
std::vector<double> expected(const CodedProblem& p) {
  return testing::attention_reference({.q = p.q,
                                       .k = p.cache.decoded(false),
                                       .v = p.cache.decoded(true),
                                       .dout = Tensor::zeros(p.q.shape(), DType::f32),
                                       .sequences = p.sequences,
                                       .causal = true,
                                       .scale = p.scale,
                                       .soft_cap = p.soft_cap,
                                       .window = p.window,
                                       .sinks = p.sinks})
      .out;
}

void expect_reference(const CodedProblem& p) {
  SCOPED_TRACE(fmt::format("q {} cache {} scales {} window {} first {}x{}", p.q.describe(), p.cache.cache.describe(),
                           p.cache.scales.describe(), p.window, p.sequences[0].q_length, p.sequences[0].k_length));
  const Tensor out = Tensor::empty(p.q.shape(), p.q.dtype());
  testing::fill(out, std::nan(""));
  coded_attention(p.args(out));
  // bf16: many queries read keys and values that are rounded to it.
  const bool bf16 = p.q.dtype() == DType::bf16;
  EXPECT_TRUE(close(out, expected(p), rounding(p.q.dtype()) * 1.01, bf16 ? 1.5e-2 : 4e-6));
}

TEST(CodedAttention, IsAttentionOverTheDecodedCache) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType codes : kCacheCodes)
      for (const bool shared : {true, false})
        for (const auto& [heads, kv_heads] : {std::pair<std::int64_t, std::int64_t>{4, 2}, {3, 3}, {6, 1}})
          for (const std::int64_t dim : {8, 20, 64})
            for (const Lengths& lengths : {Lengths{{1, 70}}, Lengths{{1, 1}, {1, 130}, {0, 9}, {1, 64}},
                                           Lengths{{3, 40}, {8, 20}}, Lengths{{21, 50}}})
              expect_reference(make_coded(random, lengths, heads, kv_heads, dim, dtype, codes, shared, 2));
}

TEST(CodedAttention, KeepsWindowsSoftCapsAndSinks) {
  Generator random(2);
  for (const DType codes : kCacheCodes)
    for (const bool shared : {true, false})
      for (const std::int64_t window : {0, 1, 30, 64, 1000})
        for (const Lengths& lengths : {Lengths{{1, 200}}, Lengths{{4, 90}, {1, 3}}, Lengths{{30, 100}}}) {
          CodedProblem p = make_coded(random, lengths, 4, 2, 16, DType::f32, codes, shared);
          p.window = window;
          expect_reference(p);
          p.soft_cap = 1.5f;
          expect_reference(p);
          p.sinks = random.normal({4}, DType::f32);
          expect_reference(p);
        }
}

TEST(CodedAttention, TheLastKeyReplacesTheLength) {
  Generator random(3);
  for (const std::int64_t queries : {1, 3}) {
    const CodedProblem p = make_coded(random, {{queries, 90}}, 4, 2, 16, DType::f32, DType::f8_e4m3, false);
    CodedProblem known = p;
    known.sequences[0].k_length = 41;
    const Tensor out = Tensor::empty(p.q.shape(), DType::f32), last = Tensor::zeros({1}, DType::i32);
    *last.data<std::int32_t>() = 40;
    CodedAttentionArgs args = p.args(out);
    args.last_key = last;
    coded_attention(args);
    EXPECT_TRUE(close(out, expected(known), 1e-6, 4e-6));
  }
}

TEST(CodedAttention, ANanInTheCacheReachesTheOutput) {
  Generator random(4);
  for (const DType codes : kCacheCodes) {
    CodedProblem p = make_coded(random, {{1, 20}}, 2, 2, 8, DType::f32, codes, false);
    const Tensor row = Tensor::zeros({1, 4 * 8}, DType::f32), position = Tensor::zeros({1}, DType::i32);
    row.data<float>()[2] = std::nanf("");
    append_codes({.values = row, .positions = position, .cache = p.cache.cache, .scales = p.cache.scales});
    const Tensor out = Tensor::empty(p.q.shape(), DType::f32);
    coded_attention(p.args(out));
    EXPECT_TRUE(std::isnan(out.data<float>()[0]));
    EXPECT_FALSE(std::isnan(out.data<float>()[8])) << "the other head";
  }
}

TEST(CodedAttention, WrongOperandsAreNamed) {
  Generator random(5);
  const CodedProblem p = make_coded(random, {{1, 20}}, 4, 2, 8, DType::f32, DType::i8, true);
  const Tensor out = Tensor::empty(p.q.shape(), DType::f32);
  const auto broken = [&](const auto& change) {
    CodedAttentionArgs args = p.args(out);
    change(args);
    EXPECT_THROW(coded_attention(args), Error);
  };
  const SequenceRange far{0, 1, 5, 20};
  broken([&](CodedAttentionArgs& a) { a.sequences = std::span(&far, 1); });
  broken([](CodedAttentionArgs& a) { a.scales = Tensor::zeros({6}, DType::f32); });
  broken([](CodedAttentionArgs& a) { a.scale = -1; });
  broken([](CodedAttentionArgs& a) { a.window = -1; });
  broken([](CodedAttentionArgs& a) { a.out = Tensor::zeros({1, 4, 4}, DType::f32); });
  broken([](CodedAttentionArgs& a) { a.sinks = Tensor::zeros({3}, DType::f32); });
  broken([](CodedAttentionArgs& a) { a.cache = Tensor::zeros({20, 32}, DType::f32); });
}

// A text token by token, and in two pieces: the same cache, and outputs near those of an unquantized one.
TEST(CachedAttention, QuantizedCachesHoldWhatPassesWhateverItsPieces) {
  constexpr std::int64_t kTokens = 40, kHeads = 4, kKvHeads = 2, kDim = 16, kWidth = (kHeads + 2 * kKvHeads) * kDim;
  Generator random(6);
  const testing::Tables tables(kTokens, kDim / 2);
  const Tensor text = random.normal({kTokens, kWidth}, DType::f32), positions = Tensor::empty({kTokens}, DType::i32);
  for (std::int64_t i = 0; i < kTokens; ++i) positions.data<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  const auto run = [&](const Tensor& cache, const Tensor& scales, const std::vector<std::int64_t>& pieces) {
    const Tensor out = Tensor::empty({kTokens, kHeads * kDim}, DType::f32);
    std::int64_t begin = 0;
    for (const std::int64_t count : pieces) {
      const SequenceRange range{0, count, 0, begin + count};
      cached_attention({.qkv = text.narrow(0, begin, count).clone(),
                        .cos = tables.cos,
                        .sin = tables.sin,
                        .positions = positions.narrow(0, begin, count),
                        .cache = cache,
                        .scales = scales,
                        .out = out.narrow(0, begin, count),
                        .heads = kHeads,
                        .kv_heads = kKvHeads,
                        .sequences = std::span(&range, 1),
                        .scale = 0.25f});
      begin += count;
    }
    return out;
  };
  const Tensor plain = Tensor::zeros({kTokens, 2 * kKvHeads * kDim}, DType::f32);
  const Tensor exact = run(plain, {}, {kTokens});
  for (const DType codes : kCacheCodes)
    for (const bool shared : {true, false}) {
      CodedCache by_token(kTokens, 2 * kKvHeads, kDim, codes, shared), pieces = by_token;
      if (shared) by_token.calibrate(plain);
      pieces.cache = by_token.cache.clone();
      if (!shared) pieces.scales = by_token.scales.clone();
      const Tensor first = run(by_token.cache, by_token.scales, std::vector<std::int64_t>(kTokens, 1));
      const Tensor second = run(pieces.cache, pieces.scales, {25, 12, 3});
      EXPECT_TRUE(testing::same_bits(by_token.cache, pieces.cache));
      EXPECT_TRUE(testing::same_bits(by_token.scales, pieces.scales));
      EXPECT_TRUE(close(second, values(first), 1e-5, 1e-5));
      EXPECT_TRUE(close(first, values(exact), 0, codes == DType::i8 ? 0.03 : 0.12));
    }
}

}  // namespace
}  // namespace quench
