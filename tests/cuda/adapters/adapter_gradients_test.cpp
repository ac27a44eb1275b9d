#include "tests/core/ops/adapter_gradients_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

AdapterGradientsArgs moved_to_gpu(const AdapterGradientsArgs& args) {
  AdapterGradientsArgs result{
      .dy = on_gpu(args.dy), .hidden = on_gpu(args.hidden), .dhidden = on_gpu(args.dhidden), .pieces = args.pieces};
  for (AdapterGradientPiece& piece : result.pieces) {
    piece.b = on_gpu(piece.b);
    piece.db = on_gpu(piece.db);
  }
  return result;
}

AdapterGradientsArgs moved_to_cpu(AdapterGradientsArgs args) {
  args.dhidden = on_cpu(args.dhidden);
  for (AdapterGradientPiece& piece : args.pieces) piece.db = on_cpu(piece.db);
  return args;
}

void expect_gradients(const AdapterGradientCase& c, double roundings) {
  const AdapterGradientsArgs args = moved_to_gpu(c.on_cpu);
  adapter_gradients(args);
  c.check(moved_to_cpu(args), roundings);
}

// One rounding: whole slabs and parts of them, rows that end within a step, pieces with columns between them.
TEST(CudaAdapterGradients, OnePassGivesBothGradients) {
  for (const std::int64_t rank : {8, 16})
    for (const DType gradient : {DType::bf16, DType::f32})
      for (const auto& [m, n, spans] :
           {std::tuple<std::int64_t, std::int64_t, std::vector<AdapterPieceSpan>>{512, 512, {{0, 512, 0, rank}}},
            {1000, 1288, {{0, 520, 0, rank}, {520, 8, rank, rank, true}, {640, 640, 2 * rank, rank}}},
            {257, 72, {{8, 64, 0, rank, true}}}}) {
        SCOPED_TRACE(fmt::format("m {} n {} rank {} gradients {}", m, n, rank, to_string(gradient)));
        expect_gradients(AdapterGradientCase(DType::bf16, gradient, m, n, 3 * rank, spans, 8), 1);
      }
}

// Sizes, ranks and dtypes without the pass.
TEST(CudaAdapterGradients, OtherSizesAndDtypes) {
  expect_gradients(AdapterGradientCase(DType::f32, DType::f32, 300, 48, 16, {{0, 24, 0, 8}, {24, 24, 8, 8}}), 3);
  expect_gradients(AdapterGradientCase(DType::bf16, DType::bf16, 300, 48, 16, {{0, 24, 0, 4}, {24, 24, 8, 8}}), 3);
  expect_gradients(AdapterGradientCase(DType::bf16, DType::bf16, 300, 64, 40, {{0, 64, 8, 32}}), 3);
  expect_gradients(AdapterGradientCase(DType::bf16, DType::bf16, 40, 48, 16, {{0, 24, 0, 16}}), 3);
  expect_gradients(AdapterGradientCase(DType::bf16, DType::bf16, 300, 50, 16, {{1, 24, 0, 16, true}}), 3);
}

TEST(CudaAdapterGradients, TheSameBitsAgain) {
  const AdapterGradientCase c(DType::bf16, DType::bf16, 4096, 1536, 32, {{0, 1024, 0, 16}, {1024, 512, 16, 16}});
  const auto run = [&] {
    const AdapterGradientsArgs args = moved_to_gpu(c.on_cpu);
    adapter_gradients(args);
    return moved_to_cpu(args);
  };
  const AdapterGradientsArgs first = run();
  for (int repeat = 0; repeat < 3; ++repeat) {
    const AdapterGradientsArgs again = run();
    EXPECT_TRUE(same_bits(first.dhidden, again.dhidden));
    for (std::size_t i = 0; i < first.pieces.size(); ++i)
      EXPECT_TRUE(same_bits(first.pieces[i].db, again.pieces[i].db));
  }
}

}  // namespace
}  // namespace quench::testing
