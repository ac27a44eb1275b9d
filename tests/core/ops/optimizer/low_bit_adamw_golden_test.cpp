// Low-bit AdamW against TorchAO's optimizers: tables, six steps of parameters, and the codes and scales after them.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "core/ops/optimizer/low_bit_adamw.h"
#include "tests/core/ops/golden_file.h"

namespace quench::testing {
namespace {

struct Variant {
  const char* name;
  MomentFormat format;
};

class LowBitAdamWGolden : public ::testing::TestWithParam<Variant> {
 protected:
  [[nodiscard]] Tensor recorded(const std::string& name) const {
    return file_.tensor(std::string(GetParam().name) + "." + name);
  }
  const GoldenFile file_{"low_bit_adamw.safetensors"};
};

TEST_P(LowBitAdamWGolden, TablesAreTheirs) {
  for (const bool is_signed : {true, false}) {
    if (GetParam().format == MomentFormat::fp8) {
      EXPECT_THROW((void)moment_table(MomentFormat::fp8, is_signed), Error);
      continue;
    }
    const Tensor theirs = recorded(is_signed ? "exp_avg.qmap" : "exp_avg_sq.qmap");
    const MomentTable& ours = moment_table(GetParam().format, is_signed);
    ASSERT_EQ(ours.size, theirs.numel());
    for (int i = 0; i < ours.size; ++i) EXPECT_EQ(ours.values[i], theirs.data<float>()[i]) << i;
  }
}

TEST_P(LowBitAdamWGolden, SixStepsGiveTheirParametersCodesAndScales) {
  const MomentFormat format = GetParam().format;
  const std::int64_t rows = 16, columns = 256, block = moment_block(format);
  const DType code_type = format == MomentFormat::fp8 ? DType::f8_e4m3 : DType::u8;
  const auto zero_moment = [&] {
    return MomentCodes{Tensor::zeros({rows, format == MomentFormat::int4 ? columns / 2 : columns}, code_type),
                       Tensor::zeros({rows, columns / block}, DType::f32)};
  };
  LowBitAdamWTensor t{
      .param = recorded("p0"), .exp_avg = zero_moment(), .exp_avg_sq = zero_moment(), .weight_decay = 0.1};
  for (int step = 1; step <= 6; ++step) {
    t.grad = recorded("g" + std::to_string(step - 1));
    low_bit_adamw({.tensors = {&t, 1},
                   .format = format,
                   .adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = step}});
    const Tensor expected = recorded("p" + std::to_string(step));
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const double e = expected.data<float>()[i];
      ASSERT_NEAR(t.param.data<float>()[i], e, 0x1p-22 * std::abs(e) + 4e-9 * step) << "step " << step << ", " << i;
    }
  }
  for (const bool first : {true, false}) {
    const std::string name = first ? "exp_avg" : "exp_avg_sq";
    const MomentCodes& ours = first ? t.exp_avg : t.exp_avg_sq;
    const Tensor codes = recorded(name + ".codes"), scales = recorded(name + ".scale");
    ASSERT_EQ(ours.codes.nbytes(), codes.nbytes());
    int steps_off = 0;
    const auto compare = [&](int a, int e) {
      ASSERT_LE(std::abs(a - e), 1);
      steps_off += a != e;
    };
    for (std::size_t i = 0; i < codes.nbytes(); ++i) {
      const int a = static_cast<const std::uint8_t*>(ours.codes.raw_data())[i];
      const int e = static_cast<const std::uint8_t*>(codes.raw_data())[i];
      if (format == MomentFormat::int4) {
        compare(a >> 4, e >> 4);
        compare(a & 15, e & 15);
      } else {
        compare(a, e);
      }
    }
    EXPECT_LE(steps_off, rows * columns / 1000) << name;
    ASSERT_EQ(ours.scales.numel(), scales.numel());
    for (std::int64_t i = 0; i < scales.numel(); ++i)
      EXPECT_NEAR(ours.scales.data<float>()[i], scales.data<float>()[i], 1e-6 * scales.data<float>()[i]) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, LowBitAdamWGolden,
                         ::testing::Values(Variant{"adamw8bit", MomentFormat::int8},
                                           Variant{"adamw4bit", MomentFormat::int4},
                                           Variant{"adamwfp8", MomentFormat::fp8}),
                         [](const auto& variant) { return std::string(variant.param.name); });

}  // namespace
}  // namespace quench::testing
