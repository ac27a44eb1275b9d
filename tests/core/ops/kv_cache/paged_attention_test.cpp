#include "core/ops/kv_cache/paged_attention.h"

#include "tests/core/ops/kv_cache/paged_cases.h"

namespace quench {
namespace {

using testing::close;
using testing::Generator;
using testing::make_paged;
using testing::PagedProblem;
using testing::PagedShape;
using testing::same_bits;
using testing::values;

// The sequence's rows of the cache, one after the other.
Tensor stretch(const PagedProblem& p, const Tensor& rows, std::int64_t sequence) {
  const std::int64_t keys = p.position(sequence) + 1;
  const Tensor all = Tensor::empty({keys, rows.size(1)}, rows.dtype());
  for (std::int64_t key = 0; key < keys; ++key)
    all.narrow(0, key, 1).copy_from(rows.narrow(0, p.cache_row(sequence, key), 1));
  return all;
}

// cached_attention() of one sequence.
Tensor expected(const PagedProblem& p, const Tensor& qkv, std::int64_t sequence) {
  const std::int64_t position = p.position(sequence), first = p.chunk > 0 ? position / p.chunk * p.chunk : 0;
  const std::vector<SequenceRange> range{{0, 1, first, position + 1 - first}};
  const Tensor out = Tensor::empty({1, p.heads * p.dim()}, qkv.dtype());
  const bool shared = p.scales.defined() && p.scales.rank() == 1;
  cached_attention({.qkv = qkv.narrow(0, sequence, 1).clone(),
                    .cos = p.cos,
                    .sin = p.sin,
                    .positions = p.positions.narrow(0, sequence, 1),
                    .cache = stretch(p, p.cache, sequence),
                    .scales = !p.scales.defined() || shared ? p.scales : stretch(p, p.scales, sequence),
                    .out = out,
                    .heads = p.heads,
                    .kv_heads = p.kv_heads,
                    .sequences = range,
                    .window = p.window,
                    .scale = 1.0f / std::sqrt(static_cast<float>(p.dim())),
                    .soft_cap = p.soft_cap,
                    .sinks = p.sinks,
                    .hadamard = p.hadamard});
  return out;
}

TEST(PagedAttention, IsCachedAttentionOfEachSequence) {
  Generator random(1);
  for (const PagedShape& shape : testing::paged_shapes()) {
    const PagedProblem p = make_paged(random, shape);
    SCOPED_TRACE(fmt::format("{} cache {} heads {}/{} window {} chunk {}", p.qkv.describe(), p.cache.describe(),
                             p.heads, p.kv_heads, p.window, p.chunk));
    const Tensor qkv = p.qkv.clone(), out = Tensor::empty({p.sequences(), p.heads * p.dim()}, p.qkv.dtype());
    testing::fill(out, std::nan(""));
    paged_attention(p.args(out));
    for (std::int64_t i = 0; i < p.sequences(); ++i) {
      const Tensor row = out.narrow(0, i, 1);
      if (p.position(i) < 0) {
        EXPECT_TRUE(close(row, std::vector<double>(static_cast<std::size_t>(row.numel()), 0.0), 0, 0));
      } else if (p.chunk > 0) {  // keys are summed in tiles from another one
        EXPECT_TRUE(close(row, values(expected(p, qkv, i)), 2 * testing::rounding(p.qkv.dtype()), 1e-3)) << i;
      } else {
        EXPECT_TRUE(same_bits(row.clone(), expected(p, qkv, i))) << i;
      }
    }
  }
}

TEST(PagedAttention, LeavesOtherRowsOfTheCacheAlone) {
  Generator random(2);
  const PagedProblem p = make_paged(random, {.positions = {20, -1, 5}});
  const Tensor before = p.cache.clone(), out = Tensor::empty({3, p.heads * p.dim()}, p.qkv.dtype());
  paged_attention(p.args(out));
  for (std::int64_t row = 0; row < p.cache.size(0); ++row) {
    const bool written = row == p.cache_row(0, 20) || row == p.cache_row(2, 5);
    EXPECT_NE(same_bits(p.cache.narrow(0, row, 1).clone(), before.narrow(0, row, 1).clone()), written) << row;
  }
}

TEST(PagedAttention, BadOperandsAreNamed) {
  Generator random(3);
  const PagedProblem p = make_paged(random, {.positions = {20, 3}});
  const Tensor out = Tensor::empty({2, p.heads * p.dim()}, p.qkv.dtype());
  PagedAttentionArgs args = p.args(out);
  args.page = 24;
  EXPECT_THROW(paged_attention(args), Error);
  args = p.args(out);
  args.chunk = 8;
  args.window = 8;
  EXPECT_THROW(paged_attention(args), Error);
  args = p.args(out);
  args.positions = Tensor::from_values<std::int32_t>({2}, std::vector<std::int32_t>{1000, 3});
  EXPECT_THROW(paged_attention(args), Error);
}

}  // namespace
}  // namespace quench
