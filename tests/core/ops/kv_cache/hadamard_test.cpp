#include "core/ops/kv_cache/hadamard.h"

#include <bit>

#include "core/number/hadamard.h"
#include "core/ops/kv_cache/cached_attention.h"
#include "tests/core/ops/kv_cache/cache_cases.h"

namespace quench {
namespace {

using testing::close;
using testing::Generator;
using testing::get_element;
using testing::values;

// Sylvester's matrix: the sign of entry (i, j) is the parity of i AND j.
std::vector<double> expected(const Tensor& x) {
  const std::int64_t dim = x.size(2), block = hadamard_block(dim);
  const std::vector<double> in = values(x);
  std::vector<double> out(in.size());
  for (std::size_t row = 0; row < in.size(); row += static_cast<std::size_t>(dim))
    for (std::int64_t i = 0; i < dim; ++i)
      for (std::int64_t j = i / block * block; j < (i / block + 1) * block; ++j) {
        const bool odd = std::popcount(static_cast<std::uint64_t>(i % block & j % block)) % 2 != 0;
        out[row + static_cast<std::size_t>(i)] +=
            (odd ? -1 : 1) * in[row + static_cast<std::size_t>(j)] / std::sqrt(static_cast<double>(block));
      }
  return out;
}

TEST(Hadamard, IsSylvestersMatrixOnBlocksOfAPowerOfTwo) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t dim : {1, 3, 2, 20, 64, 80, 96, 128, 192, 256, 512}) {
      const Tensor x = random.normal({3, 2, dim}, dtype);
      const std::vector<double> wanted = expected(x);
      hadamard({x});
      EXPECT_TRUE(close(x, wanted, testing::rounding(dtype), 1e-6)) << dim;
    }
}

TEST(Hadamard, IsItsOwnInverseAndLeavesOtherColumnsAlone) {
  Generator random(2);
  const Tensor rows = random.normal({5, 7 * 64}, DType::f32), before = rows.clone();
  const Tensor heads = rows.strided({5, 3, 64}, {rows.size(1), 64, 1}, 2 * 64);
  hadamard({heads});
  for (const std::int64_t column : {0, 127, 5 * 64, 7 * 64 - 1})
    EXPECT_EQ(get_element(rows, column), get_element(before, column));
  EXPECT_GT(std::abs(get_element(rows, 130) - get_element(before, 130)), 1e-3);
  hadamard({heads});
  EXPECT_TRUE(close(rows, values(before), 1e-6, 1e-6));
}

// Attention over codes next to attention over the keys and values themselves.
double cache_error(const Tensor& qkv, std::int64_t tokens, bool transforms) {
  constexpr std::int64_t kHeads = 4, kKvHeads = 2, kDim = 64;
  const std::vector<SequenceRange> range{{0, tokens, 0, tokens}};
  const Tensor positions = Tensor::empty({tokens}, DType::i32);
  for (std::int64_t i = 0; i < tokens; ++i) positions.data<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  const auto attend = [&](const Tensor& cache, const Tensor& scales, bool hadamard) {
    const Tensor out = Tensor::empty({tokens, kHeads * kDim}, DType::f32);
    cached_attention({.qkv = qkv.clone(),
                      .positions = positions,
                      .cache = cache,
                      .scales = scales,
                      .out = out,
                      .heads = kHeads,
                      .kv_heads = kKvHeads,
                      .sequences = range,
                      .scale = 0.125f,
                      .hadamard = hadamard});
    return values(out);
  };
  const testing::CodedCache coded(tokens, 2 * kKvHeads, kDim, DType::i8, false);
  const std::vector<double> exact = attend(Tensor::empty({tokens, 2 * kKvHeads * kDim}, DType::f32), {}, false),
                            got = attend(coded.cache, coded.scales, transforms);
  double error = 0;
  for (std::size_t i = 0; i < got.size(); ++i) error += std::pow(got[i] - exact[i], 2);
  return std::sqrt(error);
}

TEST(Hadamard, KeysWithALargeChannelLoseAThirdAsMuchInEightBits) {
  Generator random(3);
  const std::int64_t tokens = 40;
  const Tensor qkv = random.normal({tokens, 8 * 64}, DType::f32);
  for (std::int64_t i = 0; i < tokens; ++i)
    for (const std::int64_t head : {4, 5}) qkv.data<float>()[i * qkv.size(1) + head * 64 + 9] = 40.0f;
  const double plain = cache_error(qkv, tokens, false), transformed = cache_error(qkv, tokens, true);
  EXPECT_LT(transformed, plain / 3);
  EXPECT_GT(transformed, 0);
}

TEST(Hadamard, GoesWithCodesAlone) {
  Generator random(4);
  const Tensor qkv = random.normal({1, 8 * 64}, DType::f32), cache = Tensor::zeros({4, 4 * 64}, DType::f32);
  const std::vector<SequenceRange> range{{0, 1, 0, 1}};
  EXPECT_THROW(cached_attention({.qkv = qkv,
                                 .positions = Tensor::from_values<std::int32_t>({1}, std::array{0}),
                                 .cache = cache,
                                 .out = Tensor::empty({1, 4 * 64}, DType::f32),
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .sequences = range,
                                 .hadamard = true}),
               Error);
}

}  // namespace
}  // namespace quench
