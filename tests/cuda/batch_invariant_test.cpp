// Batch-invariant mode on a GPU: GEMMs in one pass over K, attention in one order, paged and not.

#include <algorithm>
#include <numeric>

#include "core/ops/kv_cache/paged_attention.h"
#include "core/ops/rope.h"
#include "tests/core/ops/batch_invariant_cases.h"
#include "tests/cuda/gpu.h"

namespace quench {
namespace {

using testing::kGpu;
using testing::same_row_bits;
using testing::uneven_values;

TEST(CudaBatchInvariant, RowsOfGemmsDoNotDependOnTheirNumber) {
  testing::expect_invariant_gemms(kGpu);
}

TEST(CudaBatchInvariant, RowsOfAttentionDoNotDependOnOtherQueries) {
  testing::expect_invariant_attention(kGpu);
}

// Positions of a batch of new tokens, each of a sequence of its own in shuffled pages, next to one pass over the
// sequence. A negative position is that of no token.
void expect_paged_bits_of_a_pass(const std::vector<std::int32_t>& lengths) {
  const testing::BatchInvariantMode mode;
  constexpr std::int64_t kTokens = 300, kPage = 16;
  const std::int64_t kPages = (std::ranges::max(lengths) + kPage) / kPage;
  const auto batch = std::ssize(lengths);
  for (const testing::InvariantAttention& c : testing::kInvariantAttention) {
    if (c.dim > 128 || c.dim % 16 != 0) continue;
    SCOPED_TRACE(fmt::format("heads {} / {} of {}, window {}", c.heads, c.kv_heads, c.dim, c.window));
    const std::int64_t width = (c.heads + 2 * c.kv_heads) * c.dim, kv = 2 * c.kv_heads * c.dim;
    const Tensor qkv = uneven_values({kTokens, width}, DType::bf16, kGpu, 7),
                 cos = uneven_values({kTokens, c.dim / 2}, DType::f32, kGpu, 8),
                 sin = uneven_values({kTokens, c.dim / 2}, DType::f32, kGpu, 9),
                 sinks = c.sinks ? uneven_values({c.heads}, DType::f32, kGpu, 6) : Tensor();
    const Tensor rotated = qkv.clone();
    std::vector<std::int32_t> numbers(kTokens);
    std::iota(numbers.begin(), numbers.end(), 0);
    const auto heads_of = [&](std::int64_t begin, std::int64_t heads) {
      return rotated.strided({kTokens, heads, c.dim}, {width, c.dim, 1}, begin * c.dim);
    };
    rope({.x = heads_of(0, c.heads + c.kv_heads),
          .cos = cos,
          .sin = sin,
          .positions = Tensor::from_values<std::int32_t>({kTokens}, numbers).to(kGpu)});
    const Tensor whole = Tensor::empty({kTokens, c.heads, c.dim}, DType::bf16, kGpu),
                 lse = Tensor::empty({c.heads, kTokens}, DType::f32, kGpu);
    const SequenceRange sequences[] = {{0, kTokens, 0, kTokens}};
    attention({.q = heads_of(0, c.heads),
               .k = heads_of(c.heads, c.kv_heads),
               .v = heads_of(c.heads + c.kv_heads, c.kv_heads),
               .out = whole,
               .lse = lse,
               .sequences = sequences,
               .window = c.window,
               .scale = 0.1f,
               .soft_cap = c.soft_cap,
               .sinks = sinks});

    const Tensor cache = Tensor::zeros({batch * kPages * kPage, kv}, DType::bf16, kGpu);
    std::vector<std::int32_t> pages(static_cast<std::size_t>(batch * kPages));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(3));
    const Tensor tokens = Tensor::empty({batch, width}, DType::bf16, kGpu);
    for (std::int64_t i = 0; i < batch; ++i) {
      const std::int32_t length = std::max(0, lengths[static_cast<std::size_t>(i)]);
      tokens.narrow(0, i, 1).copy_from(qkv.narrow(0, length, 1));
      for (std::int64_t t = 0; t < length; ++t)
        copy_rows({rotated.narrow(0, t, 1).narrow(1, width - kv, kv),
                   cache.narrow(0, pages[static_cast<std::size_t>(i * kPages + t / kPage)] * kPage + t % kPage, 1)});
    }
    const Tensor out = Tensor::empty({batch, c.heads * c.dim}, DType::bf16, kGpu);
    paged_attention({.qkv = tokens,
                     .cos = cos,
                     .sin = sin,
                     .positions = Tensor::from_values<std::int32_t>({batch}, lengths).to(kGpu),
                     .pages = Tensor::from_values<std::int32_t>({batch, kPages}, pages).to(kGpu),
                     .page = kPage,
                     .cache = cache,
                     .out = out,
                     .heads = c.heads,
                     .kv_heads = c.kv_heads,
                     .window = c.window,
                     .scale = 0.1f,
                     .soft_cap = c.soft_cap,
                     .sinks = sinks});
    for (std::int64_t i = 0; i < batch; ++i) {
      const std::int32_t length = lengths[static_cast<std::size_t>(i)];
      const Tensor expected =
          length >= 0 ? whole.narrow(0, length, 1) : Tensor::zeros({1, c.heads, c.dim}, DType::bf16);
      EXPECT_TRUE(same_row_bits(out.narrow(0, i, 1), expected)) << "position " << length;
    }
  }
}

// A CTA has all keys of its heads where they are few, or where there are many sequences; else CTAs share them.
TEST(CudaBatchInvariant, PagedAttentionHasTheBitsOfAPassOverTheSequence) {
  const std::vector<std::int32_t> any = {0, 1, -1, 15, 16, 63, 64, 65, 127, 128, 191, 200, 255, 299};
  expect_paged_bits_of_a_pass({any.begin(), any.end() - 1});
  expect_paged_bits_of_a_pass(any);
  std::vector<std::int32_t> many;
  for (std::int32_t i = 0; i < 140; ++i) many.push_back((i * 7 + 299) % 300);
  expect_paged_bits_of_a_pass(many);
}

}  // namespace
}  // namespace quench
