#include "core/ops/optimizer/muon.h"

#include "tests/core/ops/golden_file.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {
namespace {

TEST(MuonOps, MomentumFollowsTheFormula) {
  Generator random(1);
  for (const bool nesterov : {false, true}) {
    const Tensor grad = random.normal({7, 45}, DType::f32), momentum = random.normal({7, 45}, DType::f32),
                 update = Tensor::empty({7, 45}, DType::bf16);
    Tensor scale = Tensor::empty({1}, DType::f32);
    scale.data<float>()[0] = 0.5f;
    const std::vector<double> g = values(grad), before = values(momentum);
    muon_momentum({grad, momentum, update, 0.95f, nesterov, scale});
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double m = before[i] + 0.05 * (0.5 * g[i] - before[i]);
      EXPECT_NEAR(values(momentum)[i], m, 1e-6);
      const double u = nesterov ? 0.5 * g[i] + 0.95 * (m - 0.5 * g[i]) : m;
      EXPECT_NEAR(values(update)[i], u, 0x1p-8 * std::abs(u) + 1e-6);
    }
  }
}

TEST(MuonOps, NormalizesGramMatricesByTheirTraces) {
  Generator random(2);
  const Tensor gram = random.normal({3, 9, 9}, DType::bf16), inverse = Tensor::empty({3}, DType::f32);
  for (std::int64_t i = 0; i < 9; ++i) {
    set_element(gram, i * 10, 4.0);            // a trace of 36
    set_element(gram, 81 + i * 10, 0.25 / 9);  // 1/4 but for the rounding
    set_element(gram, 162 + i * 10, 0.0);
  }
  const std::vector<double> before = values(gram);
  normalize_gram({gram, inverse});
  EXPECT_FLOAT_EQ(inverse.data<float>()[0], 1.0f / 6);
  EXPECT_NEAR(inverse.data<float>()[1], 2.0, 0.01);
  EXPECT_FLOAT_EQ(inverse.data<float>()[2], 1e7f);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double factor = inverse.data<float>()[i / 81];
    EXPECT_NEAR(values(gram)[i], before[i] * factor * factor, 0x1.02p-8 * std::abs(before[i] * factor * factor));
  }
}

TEST(MuonOps, ApplyDecaysAndSteps) {
  Generator random(3);
  const Tensor param = random.normal({5, 33}, DType::bf16), update = random.normal({5, 33}, DType::bf16),
               master = Tensor::empty({5, 33}, DType::f32);
  for (std::int64_t i = 0; i < 165; ++i) set_element(master, i, get_element(param, i));
  const std::vector<double> before = values(master);
  muon_apply({.param = param, .master = master, .update = update, .decay = 0.5f, .step_size = -0.25f});
  for (std::int64_t i = 0; i < 165; ++i) {
    EXPECT_NEAR(get_element(master, i), 0.5 * before[static_cast<std::size_t>(i)] - 0.25 * get_element(update, i),
                1e-6);
    EXPECT_EQ(param.data<bfloat16>()[i].bits, bfloat16(master.data<float>()[i]).bits);
  }
}

TEST(MuonOps, ANonFiniteScaleChangesNothing) {
  Generator random(4);
  Tensor scale = Tensor::empty({1}, DType::f32);
  scale.data<float>()[0] = std::nanf("");
  const Tensor x = random.normal({4, 4}, DType::f32), state = random.normal({4, 4}, DType::f32),
               update = random.normal({4, 4}, DType::bf16);
  const Tensor x_before = x.clone(), state_before = state.clone();
  muon_apply({.param = x, .update = update, .step_size = 1.0f, .grad_scale = scale});
  EXPECT_TRUE(same_bytes(x, x_before));
  muon_momentum({x, state, update, 0.9f, true, scale});
  EXPECT_TRUE(same_bytes(state, state_before));
  EXPECT_EQ(values(update), std::vector<double>(16));
}

TEST(MuonOps, RejectBadArguments) {
  const Tensor f32 = Tensor::zeros({4, 4}, DType::f32), bf16 = Tensor::zeros({4, 4}, DType::bf16),
               other = Tensor::zeros({4, 5}, DType::bf16);
  EXPECT_THROW(muon_momentum({f32, f32, f32}), Error);
  EXPECT_THROW(muon_momentum({f32, f32, other}), Error);
  const Tensor gram = Tensor::zeros({2, 4, 4}, DType::bf16);
  EXPECT_THROW(normalize_gram({gram, Tensor::zeros({1}, DType::f32)}), Error);
  EXPECT_THROW(normalize_gram({Tensor::zeros({2, 4, 5}, DType::bf16), Tensor::zeros({2}, DType::f32)}), Error);
  EXPECT_THROW(normalize_gram({Tensor::zeros({2, 4, 4}, DType::f32), Tensor::zeros({2}, DType::f32)}), Error);
  EXPECT_THROW(muon_apply({.param = f32, .master = f32, .update = bf16}), Error);
}

}  // namespace
}  // namespace quench::testing
