#include "core/ops/optimizer/low_bit_adamw.h"

#include "core/number/stochastic_rounding.h"
#include "tests/core/ops/golden_file.h"
#include "tests/core/ops/op_testing.h"
#include "tests/core/ops/optimizer/low_bit_adamw_cases.h"

namespace quench::testing {
namespace {

// The code that the table's definition asks for: the nearest value, the upper one in the middle.
int nearest_code(const MomentTable& table, float y) {
  int code = 0;
  while (code + 1 < table.size && y >= table.values[code + 1]) ++code;
  if (code + 1 < table.size && y - table.values[code] >= 0.5f * (table.values[code + 1] - table.values[code])) ++code;
  return code;
}

// The way to a code by keys, at every bound of a key, every threshold and between them.
TEST(MomentTable, KeysLeadToTheCodeOfTheSearch) {
  for (const MomentFormat format : {MomentFormat::int8, MomentFormat::int4})
    for (const bool is_signed : {true, false}) {
      const MomentTable& table = moment_table(format, is_signed);
      std::vector<std::uint32_t> entries;
      for (int key = -MomentKeys::kCount; key < MomentKeys::kCount; ++key)
        entries.push_back(MomentKeys::entry(table.thresholds, table.size, key));
      const auto check = [&](float y) {
        for (const float near : {y, std::nextafter(y, 2.0f), std::nextafter(y, -2.0f)}) {
          if (std::abs(near) > 1.0f || (!is_signed && near < 0.0f)) continue;
          const std::int32_t place = MomentKeys::place(std::abs(near), std::signbit(near));
          const std::uint32_t entry = entries[static_cast<std::size_t>(MomentKeys::key(place) + MomentKeys::kCount)];
          ASSERT_EQ(MomentKeys::code(entry, place),
                    static_cast<std::uint32_t>(search_moment(table.thresholds, table.size, near)))
              << near;
        }
      };
      for (int i = 1; i < table.size; ++i) check(table.thresholds[i]);
      for (int key = 0; key < MomentKeys::kCount; ++key)
        for (const float sign : {1.0f, -1.0f}) check(sign * MomentKeys::least_magnitude(key));
      Generator random(17);
      const Tensor values = random.normal({100000}, DType::f32, 0.4);
      for (int i = 0; i < 100000; ++i) check(std::ldexp(values.data<float>()[i], -(i % 30)));
    }
}

TEST(MomentTable, ThresholdsDivideWhereTheUpperValueBecomesTheNearer) {
  for (const MomentFormat format : {MomentFormat::int8, MomentFormat::int4})
    for (const bool is_signed : {true, false}) {
      const MomentTable& table = moment_table(format, is_signed);
      const auto code_of = [&](float y) {
        int code = 0;
        while (code + 1 < table.size && y >= table.thresholds[code + 1]) ++code;
        return code;
      };
      for (int i = 1; i < table.size; ++i) {
        EXPECT_LT(table.values[i - 1], table.values[i]);
        const float threshold = table.thresholds[i];
        for (const float y : {std::nextafter(threshold, -2.0f), threshold, std::nextafter(threshold, 2.0f),
                              table.values[i - 1], table.values[i]})
          EXPECT_EQ(code_of(y), nearest_code(table, y)) << y;
      }
      EXPECT_EQ(code_of(-1.0f), 0);
      EXPECT_EQ(code_of(1.0f), table.size - 1);
    }
}

class LowBitAdamW : public ::testing::TestWithParam<MomentFormat> {};

// The moments of one step from zero are those of adamw() up to their codes, the parameters but for the order of the
// decay.
TEST_P(LowBitAdamW, FirstStepIsThatOfAdamW) {
  Generator random(3);
  LowBitCase test(random, {8, 512}, GetParam(), DType::f32, DType::f32, false);
  AdamWTensor plain{.param = test.tensor.param.clone(),
                    .grad = test.tensor.grad,
                    .exp_avg = Tensor::zeros({8, 512}, DType::f32),
                    .exp_avg_sq = Tensor::zeros({8, 512}, DType::f32),
                    .weight_decay = 0.1};
  const AdamWArgs args{.lr = 1e-2, .beta2 = 0.95, .step = 1};
  low_bit_adamw({.tensors = {&test.tensor, 1}, .format = GetParam(), .adamw = args});
  AdamWArgs all = args;
  all.tensors = {&plain, 1};
  adamw(all);
  EXPECT_TRUE(close(test.tensor.param, values(plain.param), 5e-7, 1e-9));
}

TEST_P(LowBitAdamW, MasterWeightsCarryTheUpdate) {
  Generator random(4);
  LowBitCase test(random, {4, 256}, GetParam(), DType::bf16, DType::bf16, true);
  for (int step = 1; step <= 3; ++step)
    low_bit_adamw({.tensors = {&test.tensor, 1}, .format = GetParam(), .adamw = {.lr = 1e-4, .step = step}});
  for (std::int64_t i = 0; i < 1024; ++i)
    EXPECT_EQ(test.tensor.param.data<bfloat16>()[i].bits, bfloat16(test.tensor.master.data<float>()[i]).bits);
}

// Rows of a matrix, with the offset of their first element, round as the whole.
TEST_P(LowBitAdamW, ShardsGiveTheBitsOfTheWhole) {
  Generator random(5);
  LowBitCase whole(random, {6, 512}, GetParam(), DType::bf16, DType::bf16, false);
  std::vector<LowBitAdamWTensor> shards;
  LowBitCase copy = whole.copy();
  for (const auto& [begin, rows] : {std::pair{0, 1}, std::pair{1, 4}, std::pair{5, 1}})
    shards.push_back(copy.rows(begin, rows));
  for (int step = 1; step <= 3; ++step) {
    const AdamWArgs args{.lr = 1e-2, .step = step, .stochastic_rounding = true, .seed = 9};
    low_bit_adamw({.tensors = {&whole.tensor, 1}, .format = GetParam(), .adamw = args});
    low_bit_adamw({.tensors = shards, .format = GetParam(), .adamw = args});
  }
  EXPECT_TRUE(same_bytes(copy.tensor.param, whole.tensor.param));
  EXPECT_TRUE(same_bytes(copy.tensor.exp_avg.codes, whole.tensor.exp_avg.codes));
  EXPECT_TRUE(same_bytes(copy.tensor.exp_avg_sq.scales, whole.tensor.exp_avg_sq.scales));
}

TEST_P(LowBitAdamW, ANonFiniteScaleChangesNothing) {
  Generator random(6);
  LowBitCase test(random, {4, 256}, GetParam(), DType::f32, DType::f32, false);
  const LowBitCase before = test.copy();
  Tensor scale = Tensor::empty({1}, DType::f32);
  scale.data<float>()[0] = std::nanf("");
  low_bit_adamw({.tensors = {&test.tensor, 1}, .format = GetParam(), .adamw = {.lr = 1, .grad_scale = scale}});
  EXPECT_TRUE(same_bytes(test.tensor.param, before.tensor.param));
  EXPECT_TRUE(same_bytes(test.tensor.exp_avg.codes, before.tensor.exp_avg.codes));
}

TEST_P(LowBitAdamW, RejectsBadArguments) {
  Generator random(7);
  LowBitCase test(random, {4, 256}, GetParam(), DType::f32, DType::f32, false);
  const auto run = [&](const LowBitAdamWTensor& t, std::int64_t step = 1) {
    low_bit_adamw({.tensors = {&t, 1}, .format = GetParam(), .adamw = {.lr = 1, .step = step}});
  };
  EXPECT_THROW(run(test.tensor, 0), Error);
  LowBitAdamWTensor bad = test.tensor;
  bad.grad = Tensor::empty({4, 128}, DType::f32);
  EXPECT_THROW(run(bad), Error);
  bad = test.tensor;
  bad.exp_avg.scales = Tensor::zeros({4, 9}, DType::f32);
  EXPECT_THROW(run(bad), Error);
  bad = test.tensor;
  bad.param = bad.grad = Tensor::zeros({4, 200}, DType::f32);
  EXPECT_THROW(run(bad), Error);
}

INSTANTIATE_TEST_SUITE_P(Formats, LowBitAdamW, ::testing::ValuesIn(kMomentFormats),
                         [](const auto& format) { return moment_format_name(format); });

}  // namespace
}  // namespace quench::testing
