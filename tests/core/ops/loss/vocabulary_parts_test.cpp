#include "core/ops/loss/vocabulary_parts.h"

#include <gtest/gtest.h>

#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

// [n,width] of the columns from `first` on.
Tensor columns_of(const Tensor& whole, std::int64_t first, std::int64_t width) {
  const Tensor part = Tensor::empty({whole.size(0), width}, whole.dtype());
  copy_rows({.from = whole.narrow(1, first, width), .to = part});
  return part;
}

struct PartLosses {
  Tensor losses;
  std::vector<Tensor> gradients;  // by part
};

PartLosses losses_of_parts(const Tensor& logits, const Tensor& labels, std::int64_t parts, DType gradient, float scale,
                           bool in_place) {
  const std::int64_t n = logits.size(0), width = logits.size(1) / parts;
  const Tensor statistics = Tensor::empty({parts * n, kLogitsStatistics}, DType::f32);
  for (std::int64_t part = 0; part < parts; ++part)
    logits_statistics({.logits = columns_of(logits, part * width, width),
                       .labels = labels,
                       .first = part * width,
                       .statistics = statistics.narrow(0, part * n, n)});
  PartLosses all{Tensor::empty({n}, DType::f32), {}};
  for (std::int64_t part = 0; part < parts; ++part) {
    const Tensor own = columns_of(logits, part * width, width);
    all.gradients.push_back(in_place ? own : Tensor::empty({n, width}, gradient));
    cross_entropy_part({.logits = own,
                        .labels = labels,
                        .first = part * width,
                        .statistics = statistics,
                        .losses = all.losses,
                        .dlogits = all.gradients.back(),
                        .grad_scale = scale});
  }
  return all;
}

TEST(VocabularyParts, LossesAndGradientsAreThoseOfTheWholeVocabulary) {
  std::uint32_t seed = 3;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType gradient : {DType::f32, DType::bf16})
      for (const std::int64_t parts : {1, 2, 4})
        for (const std::int64_t width : {1, 7, 48})
          for (const double spread : {1.0, 30.0}) {
            SCOPED_TRACE(fmt::format("{} {} {} parts of {} spread {}", to_string(dtype), to_string(gradient), parts,
                                     width, spread));
            Generator random(++seed);
            const std::int64_t n = random.between(2, 30), vocab = parts * width;
            const Tensor logits = random.normal({n, vocab}, dtype, spread), labels = random.integers(n, vocab);
            labels.data<std::int32_t>()[0] = kIgnoreLabel;
            const Tensor losses = Tensor::empty({n}, DType::f32), whole = Tensor::empty({n, vocab}, gradient);
            const float scale = 1.0f / static_cast<float>(n);
            cross_entropy(
                {.logits = logits, .labels = labels, .losses = losses, .dlogits = whole, .grad_scale = scale});
            const PartLosses got = losses_of_parts(logits, labels, parts, gradient, scale, false);
            EXPECT_TRUE(close(got.losses, values(losses), 1e-6, 1e-6));
            for (std::int64_t part = 0; part < parts; ++part)
              EXPECT_TRUE(close(got.gradients[static_cast<std::size_t>(part)],
                                values(columns_of(whole, part * width, width)), 2 * rounding(gradient) + 1e-6,
                                2e-7 * scale));
            if (dtype != gradient) continue;
            const PartLosses again = losses_of_parts(logits, labels, parts, gradient, scale, true);
            EXPECT_TRUE(same_bits(again.losses, got.losses));
            for (std::size_t part = 0; part < got.gradients.size(); ++part)
              EXPECT_TRUE(same_bits(again.gradients[part], got.gradients[part]));
          }
}

TEST(VocabularyParts, RowsOfPartsAddUpToTheEmbedding) {
  Generator random(5);
  const Tensor table = random.normal({12, 5}, DType::f32, 1.0), ids = random.integers(40, 12);
  const Tensor expected = Tensor::empty({40, 5}, DType::f32), sum = Tensor::zeros({40, 5}, DType::f32);
  embedding({.table = table, .ids = ids, .out = expected});
  for (const std::int64_t first : {0, 4, 8}) {
    const Tensor rows = Tensor::empty({40}, DType::i32), factors = Tensor::empty({40}, DType::f32);
    own_rows({.ids = ids, .first = first, .count = 4, .rows = rows, .factors = factors});
    const Tensor part = Tensor::empty({40, 5}, DType::f32);
    embedding({.table = table.narrow(0, first, 4), .ids = rows, .out = part});
    scale_rows({.x = part, .factors = factors});
    accumulate({.x = part, .out = sum});
  }
  EXPECT_TRUE(same_bits(sum, expected));
}

TEST(VocabularyParts, LabelsOutsideTheWholeVocabularyAreNamed) {
  const Tensor logits = Tensor::zeros({2, 4}, DType::f32), losses = Tensor::empty({2}, DType::f32);
  const std::array<std::int32_t, 2> labels{7, 8};
  const Tensor statistics = Tensor::zeros({2 * 2, kLogitsStatistics}, DType::f32);
  try {
    cross_entropy_part({.logits = logits,
                        .labels = Tensor::from_values<std::int32_t>({2}, labels),
                        .statistics = statistics,
                        .losses = losses});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cross_entropy: label 8 of row 1 is neither -100 nor in [0, 8)");
  }
}

}  // namespace
}  // namespace quench
