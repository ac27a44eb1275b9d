#include "tests/core/ops/adapter_gradients_cases.h"

namespace quench {
namespace {

using namespace testing;

TEST(AdapterGradients, GivesBothGradients) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType gradient : {dtype, DType::f32})
      for (const auto& spans : {std::vector<AdapterPieceSpan>{{0, 40, 0, 9}},          // all columns
                                {{0, 16, 0, 3}, {16, 8, 3, 2, true}, {24, 16, 5, 4}},  // likewise
                                {{4, 10, 2, 3, true}, {30, 10, 6, 2}}}) {              // some columns
        SCOPED_TRACE(fmt::format("{} {} pieces {}", to_string(dtype), to_string(gradient), spans.size()));
        const AdapterGradientCase c(dtype, gradient, 21, 40, 9, spans, 3);
        adapter_gradients(c.on_cpu);
        c.check(c.on_cpu, 2);
      }
}

TEST(AdapterGradients, AGradientThatNobodyWantsIsLeftOut) {
  AdapterGradientCase c(DType::f32, DType::f32, 5, 16, 6, {{0, 8, 0, 3}, {8, 8, 3, 3}});
  const Tensor unwanted = c.on_cpu.pieces[0].db;
  fill(unwanted, 7.0);
  c.on_cpu.pieces[0].db = Tensor();
  adapter_gradients(c.on_cpu);
  for (const double value : values(unwanted)) EXPECT_EQ(value, 7.0);
}

TEST(AdapterGradients, RefusesWhatDoesNotFit) {
  const AdapterGradientCase c(DType::f32, DType::f32, 5, 16, 6, {{0, 8, 0, 3}, {8, 8, 3, 3}});
  const auto refused = [&](auto&& spoil) {
    AdapterGradientsArgs args = c.on_cpu;
    spoil(args);
    EXPECT_THROW(adapter_gradients(args), Error);
  };
  refused([](AdapterGradientsArgs& args) { args.hidden = Tensor::zeros({4, 6}, DType::f32); });
  refused([](AdapterGradientsArgs& args) { args.hidden = Tensor::zeros({5, 6}, DType::bf16); });
  refused([](AdapterGradientsArgs& args) { args.dhidden = Tensor::zeros({5, 5}, DType::f32); });
  refused([](AdapterGradientsArgs& args) { args.pieces[1].column = 7; });      // over the piece before it
  refused([](AdapterGradientsArgs& args) { args.pieces[1].column = 9; });      // beyond dY
  refused([](AdapterGradientsArgs& args) { args.pieces[1].rank_begin = 2; });  // over the piece before it
  refused([](AdapterGradientsArgs& args) { args.pieces[1].rank_begin = 4; });  // beyond the hidden values
  refused([](AdapterGradientsArgs& args) { args.pieces[0].b = Tensor(); });
  refused([](AdapterGradientsArgs& args) { args.pieces[0].db = Tensor::zeros({3, 8}, DType::f32); });
}

}  // namespace
}  // namespace quench
