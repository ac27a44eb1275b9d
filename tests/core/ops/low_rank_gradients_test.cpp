#include "core/ops/low_rank_gradients.h"

#include "tests/core/ops/low_rank_gradients_cases.h"

namespace quench::testing {
namespace {

TEST(LowRankGradients, AreThoseOfTheUpdate) {
  const auto stay = [](const Tensor& t) { return t; };
  for (const auto& [dtype, db_dtype] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
    for (const bool adds : {false, true})
      for (const std::int64_t rank : {1, 5, 16}) {
        SCOPED_TRACE(fmt::format("{} {} adds {} rank {}", to_string(dtype), to_string(db_dtype), adds, rank));
        const LowRankCase c(dtype, db_dtype, 37, 24, rank, 8, adds);
        const LowRankGradientsArgs args = c.args(stay);
        low_rank_gradients(args);
        c.check(args.dh, args.db);
      }
}

TEST(LowRankGradients, RejectWhatDoesNotFit) {
  const Tensor dy = Tensor::zeros({6, 8}, DType::f32), h = Tensor::zeros({6, 2}, DType::f32),
               b = Tensor::zeros({8, 2}, DType::f32);
  EXPECT_NO_THROW(low_rank_gradients({.dy = dy, .h = h, .b = b, .dh = h.clone(), .db = b.clone()}));
  EXPECT_THROW(low_rank_gradients({.dy = dy, .h = b, .b = b, .dh = h.clone(), .db = b.clone()}), Error);
  EXPECT_THROW(low_rank_gradients({.dy = dy, .h = h, .b = h, .dh = h.clone(), .db = b.clone()}), Error);
  EXPECT_THROW(low_rank_gradients({.dy = dy, .h = h, .b = b, .dh = b.clone(), .db = b.clone()}), Error);
  EXPECT_THROW(
      low_rank_gradients({.dy = dy, .h = h, .b = b, .dh = h.clone(), .db = Tensor::zeros({8, 2}, DType::bf16)}), Error);
  EXPECT_THROW(low_rank_gradients({.dy = dy.transpose(0, 1), .h = b, .b = h, .dh = b.clone(), .db = h.clone()}), Error);
}

}  // namespace
}  // namespace quench::testing
