#include "core/ops/loss/hidden_loss.h"

#include "core/json/json.h"
#include "core/ops/loss/cross_entropy.h"
#include "tests/core/ops/op_testing.h"
#include "tests/reference_numbers.h"
#include "tests/testing.h"

namespace quench {
namespace {

using namespace testing;

constexpr HiddenDistance kDistances[] = {HiddenDistance::mse, HiddenDistance::cosine, HiddenDistance::normalized_mse};

double distance_by_definition(HiddenDistance distance, const std::vector<double>& s, const double* t) {
  double difference = 0, own = 0, other = 0, product = 0;
  for (std::size_t j = 0; j < s.size(); ++j) {
    difference += (s[j] - t[j]) * (s[j] - t[j]);
    own += s[j] * s[j];
    other += t[j] * t[j];
    product += s[j] * t[j];
  }
  switch (distance) {
    case HiddenDistance::mse: return difference / static_cast<double>(s.size());
    case HiddenDistance::cosine: return 1 - product / std::sqrt(own * other);
    case HiddenDistance::normalized_mse: return difference / other;
  }
  return 0;
}

HiddenLossArgs hidden_args(const Tensor& student, const Tensor& teacher, const Tensor& labels,
                           HiddenDistance distance) {
  return {.student = student,
          .teacher = teacher,
          .labels = labels,
          .losses = Tensor::empty({student.size(0)}, DType::f32),
          .dstudent = Tensor::empty_like(student),
          .distance = distance};
}

TEST(HiddenLoss, LossesAndGradientsFollowTheirDefinition) {
  std::uint32_t seed = 70;
  for (const HiddenDistance distance : kDistances)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t width : {2, 5, 64, 1003}) {
        SCOPED_TRACE(fmt::format("distance {} {} width {}", static_cast<int>(distance), to_string(dtype), width));
        Generator random(++seed);
        const std::int64_t n = 5;
        const Tensor student = random.normal({n, width}, dtype, 2), teacher = random.normal({n, width}, dtype, 3),
                     labels = Tensor::zeros({n}, DType::i32);
        labels.data<std::int32_t>()[2] = kIgnoreLabel;
        HiddenLossArgs args = hidden_args(student, teacher, labels, distance);
        args.grad_scale = 0.3f;
        hidden_loss(args);
        const std::vector<double> s = values(student), t = values(teacher);
        std::vector<double> losses(5), gradient(s.size());
        const auto count = static_cast<std::size_t>(width);
        for (std::size_t i = 0; i < 5; ++i) {
          if (i == 2) continue;
          std::vector<double> row(s.begin() + static_cast<std::ptrdiff_t>(i * count),
                                  s.begin() + static_cast<std::ptrdiff_t>((i + 1) * count));
          losses[i] = distance_by_definition(distance, row, &t[i * count]);
          for (std::size_t j = 0; j < count; ++j) {
            constexpr double kStep = 1e-4;
            const double x = row[j];
            row[j] = x + kStep;
            const double above = distance_by_definition(distance, row, &t[i * count]);
            row[j] = x - kStep;
            gradient[i * count + j] =
                0.3 * (above - distance_by_definition(distance, row, &t[i * count])) / (2 * kStep);
            row[j] = x;
          }
        }
        EXPECT_TRUE(close(args.losses, losses, 2e-6, 1e-6));
        EXPECT_TRUE(close(args.dstudent, gradient, rounding(dtype) * 1.01 + 1e-5, 1e-6));
        const Tensor apart = args.dstudent;
        args.dstudent = teacher;  // in place
        hidden_loss(args);
        EXPECT_EQ(values(args.dstudent), values(apart));
      }
}

// tests/reference/make_distillation.py.
TEST(HiddenLoss, AgreesWithPyTorch) {
  const Json reference = Json::parse_file(testing::source_dir() / "tests/reference/distillation.json");
  const auto states = [](std::uint32_t first) {
    const Tensor matrix = Tensor::empty({4, 37}, DType::f32);
    for (std::uint32_t i = 0; i < 4 * 37; ++i)
      matrix.data<float>()[i] = (static_cast<float>(testing::mixed(first + i) >> 16) - 32768) / 8192;
    return matrix;
  };
  for (const Json& row : reference.at("hidden").as_array()) {
    const std::string& name = row.at("distance").as_string();
    SCOPED_TRACE(name);
    const HiddenDistance distance = name == "mse"      ? HiddenDistance::mse
                                    : name == "cosine" ? HiddenDistance::cosine
                                                       : HiddenDistance::normalized_mse;
    const HiddenLossArgs args = hidden_args(states(1), states(50'000), Tensor::zeros({4}, DType::i32), distance);
    hidden_loss(args);
    const auto numbers = [&](std::string_view key) {
      std::vector<double> all;
      for (const Json& value : row.at(key).as_array()) all.push_back(value.as_double());
      return all;
    };
    EXPECT_TRUE(close(args.losses, numbers("losses"), 1e-6, 1e-6));
    EXPECT_TRUE(close(args.dstudent, numbers("gradient"), 2e-6, 1e-6));
  }
}

TEST(HiddenLoss, EqualStatesAndZeroStatesHaveFiniteGradients) {
  Generator random(7);
  const Tensor states = random.normal({3, 40}, DType::f32), labels = Tensor::zeros({3}, DType::i32);
  for (const HiddenDistance distance : kDistances) {
    const HiddenLossArgs equal = hidden_args(states, states, labels, distance);
    hidden_loss(equal);
    EXPECT_TRUE(close(equal.losses, std::vector<double>(3), 0, 1e-6));
    EXPECT_TRUE(close(equal.dstudent, std::vector<double>(120), 0, 1e-6));
    const HiddenLossArgs zero =
        hidden_args(Tensor::zeros({3, 40}, DType::f32), Tensor::zeros({3, 40}, DType::f32), labels, distance);
    hidden_loss(zero);
    for (const double x : values(zero.losses)) EXPECT_EQ(x, distance == HiddenDistance::cosine ? 1 : 0);
    for (const double x : values(zero.dstudent)) EXPECT_EQ(x, 0);
  }
}

TEST(HiddenLoss, RefusesWhatDoesNotFit) {
  const Tensor states = Tensor::zeros({2, 4}, DType::f32), labels = Tensor::zeros({2}, DType::i32);
  HiddenLossArgs args = hidden_args(states, Tensor::zeros({2, 5}, DType::f32), labels, HiddenDistance::mse);
  EXPECT_THROW(hidden_loss(args), Error);
  args.teacher = Tensor::zeros({2, 4}, DType::bf16);
  EXPECT_THROW(hidden_loss(args), Error);
  args.teacher = states;
  args.labels = Tensor::zeros({3}, DType::i32);
  EXPECT_THROW(hidden_loss(args), Error);
}

}  // namespace
}  // namespace quench
