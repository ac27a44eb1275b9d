#pragma once
// Rows of logits and sampling options for the tests of sample_tokens on the CPU and on a GPU.

#include <numbers>

#include "core/ops/sampling/sample_tokens.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {

struct SamplingProblem {
  Tensor logits, rows, tokens, seen, sampled, allowed{};

  [[nodiscard]] SampleTokensArgs args() const {
    return {.logits = logits, .rows = rows, .tokens = tokens, .seen = seen, .sampled = sampled, .allowed = allowed};
  }
  [[nodiscard]] SamplingRow& row(std::int64_t i) const { return reinterpret_cast<SamplingRow*>(rows.raw_data())[i]; }
  [[nodiscard]] const SampledRow& result(std::int64_t i) const {
    return reinterpret_cast<const SampledRow*>(sampled.raw_data())[i];
  }
};

// Greedy rows of these logits; row i gives token count - 1 - i.
inline SamplingProblem make_sampling(const Tensor& logits, bool with_seen) {
  const std::int64_t count = logits.size(0), words = (logits.size(1) + 31) / 32;
  SamplingProblem p{.logits = logits,
                    .rows = Tensor::zeros({count, sizeof(SamplingRow)}, DType::u8),
                    .tokens = Tensor::zeros({count}, DType::i32),
                    .seen = with_seen ? Tensor::zeros({count, words}, DType::i32) : Tensor(),
                    .sampled = Tensor::zeros({count, sizeof(SampledRow)}, DType::u8)};
  for (std::int64_t i = 0; i < count; ++i) p.row(i) = {.to = static_cast<std::int32_t>(count - 1 - i)};
  return p;
}

// Bits of allowed tokens, at least one a row; a word more than they need.
inline Tensor random_allowed(Generator& random, std::int64_t count, std::int64_t vocabulary) {
  const std::int64_t words = (vocabulary + 31) / 32 + 1;
  const Tensor allowed = Tensor::zeros({count, words}, DType::i32);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int32_t* const row = allowed.data<std::int32_t>() + i * words;
    const std::int64_t ones = random.below(3);  // none, some, all
    for (std::int64_t j = 0; j < words && ones > 0; ++j)
      row[j] = ones == 2 ? -1 : static_cast<std::int32_t>(random.below(std::int64_t{1} << 32));
    const std::int64_t token = random.below(vocabulary);
    row[token / 32] = static_cast<std::int32_t>(static_cast<std::uint32_t>(row[token / 32]) | 1u << token % 32);
  }
  return allowed;
}

// Random options and logits: some rows with many equal logits, extreme ranges, penalties, few allowed tokens.
inline SamplingProblem random_sampling(Generator& random) {
  const std::int64_t count = random.between(1, 6),
                     vocabulary = random.coin() ? random.between(1, 300) : random.between(1000, 60000);
  const Tensor logits = random.normal({count, vocabulary}, DType::f32, random.coin() ? 1 : random.coin() ? 8 : 0.01);
  for (std::int64_t i = 0; i < count; ++i)
    if (random.coin())  // ties
      for (std::int64_t j = 0; j < vocabulary; ++j) {
        float& x = logits.data<float>()[i * vocabulary + j];
        x = std::round(x * 4) / 4;
      }
  if (random.below(10) == 0) set_element(logits, random.below(logits.numel()), random.coin() ? std::nan("") : INFINITY);
  SamplingProblem p = make_sampling(logits, random.coin());
  if (random.coin()) p.allowed = random_allowed(random, count, vocabulary);
  for (std::int64_t i = 0; i < count; ++i) {
    SamplingRow& row = p.row(i);
    if (random.below(5) > 0) row.scale = std::numbers::log2e_v<float> / static_cast<float>(random.between(1, 30)) * 10;
    if (random.coin()) row.top_p = static_cast<float>(random.between(1, 999)) / 1000;
    if (random.coin()) row.top_k = static_cast<std::int32_t>(random.between(1, vocabulary + 2));
    if (random.coin()) row.min_p = static_cast<float>(random.between(0, 1000)) / 1000;
    if (random.coin()) row.penalty = static_cast<float>(random.between(5, 20)) / 10;
    row.uniform = static_cast<std::uint64_t>(random.below(std::int64_t{1} << 62)) * 4 + 3;
    for (int j = 0; j < 20 && p.seen.defined(); ++j) {
      const std::int64_t token = random.below(vocabulary);
      auto& word = p.seen.data<std::int32_t>()[row.to * p.seen.size(1) + token / 32];
      word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | 1u << token % 32);
    }
  }
  return p;
}

}  // namespace quench::testing
