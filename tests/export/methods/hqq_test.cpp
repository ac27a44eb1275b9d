#include "export/methods/hqq.h"

#include <algorithm>
#include <cmath>

#include "export/methods/rtn.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;

constexpr double kNorm = 0.7;

// Heavy tails, for which the amax is a bad scale.
Tensor heavy_tailed() {
  const Tensor w = normal_weight({32, 256}, DType::f32);
  for (std::int64_t i = 0; i < w.numel(); ++i) w.data<float>()[i] *= std::abs(w.data<float>()[i]) * 40;
  return w;
}

double error_to(double power, const Tensor& w, const QuantizedWeight& q) {
  const Tensor v = unpacked(pack(q, "w"));
  double sum = 0;
  for (std::int64_t i = 0; i < w.numel(); ++i)
    sum += std::pow(std::abs(static_cast<double>(v.data<float>()[i]) - static_cast<double>(w.data<float>()[i])), power);
  return sum;
}

// The published solver: a fixed scale of the range, its zero point by means over the codes, rounded at the end, as
// integer zero points are stored.
double published_error(const Tensor& w, int bits, std::int64_t group) {
  double sum = 0;
  const double most = (1 << bits) - 1;
  for (std::int64_t first = 0; first < w.numel(); first += group) {
    const float* x = w.data<float>() + first;
    const auto [low, high] = std::minmax_element(x, x + group);
    const double scale = most / (*high - *low);
    double zero = -*low * scale, beta = 10, best = 1e30;
    const auto code = [&](float value, double offset) {
      return std::clamp(std::nearbyint(value * scale + offset), 0.0, most);
    };
    for (int step = 0; step < 20; ++step, beta *= 1.01) {
      double error = 0, next = 0;
      for (std::int64_t i = 0; i < group; ++i) {
        const double q = code(x[i], zero), lost = x[i] - (q - zero) / scale;
        const double kept = std::max(std::abs(lost) - std::pow(std::abs(lost), kNorm - 1) / beta, 0.0);
        next += q - (x[i] - std::copysign(kept, lost)) * scale;
        error += std::abs(lost);
      }
      zero = next / static_cast<double>(group);
      if (!(error < best)) break;
      best = error;
    }
    zero = std::nearbyint(zero);
    for (std::int64_t i = 0; i < group; ++i) sum += std::pow(std::abs(x[i] - (code(x[i], zero) - zero) / scale), kNorm);
  }
  return sum;
}

TEST(Hqq, LowersTheMeanError) {
  const Tensor w = heavy_tailed();
  for (const char* name : {"int4_weight_only_g64", "int4_weight_only_g64_asym", "int3_weight_only_g128",
                           "int2_weight_only_g32_asym", "int8_weight_only"}) {
    const OperandScheme& scheme = find_scheme(name)->weights;
    EXPECT_LT(error_to(1, w, hqq(w, scheme, "w")), 0.995 * error_to(1, w, rtn(w, scheme, "w"))) << name;
  }
}

TEST(Hqq, ItsNormIsBelowThatOfThePublishedSolver) {
  for (const Tensor& w : {heavy_tailed(), normal_weight({32, 256}, DType::f32)})
    for (const int bits : {2, 3})
      for (const std::int64_t group : {16, 32, 64}) {
        const OperandScheme scheme{
            .bits = bits, .mapping = IntMapping::asymmetric, .sharing = ScaleSharing::group, .group_size = group};
        const double ours = error_to(kNorm, w, hqq(w, scheme, "w", DType::bf16));
        EXPECT_LT(ours, published_error(w, bits, group)) << bits << " bits, groups of " << group;
        EXPECT_LT(ours, error_to(kNorm, w, rtn(w, scheme, "w", DType::bf16)));
      }
}

TEST(Hqq, GroupsOfZerosStayZeros) {
  const Tensor w = Tensor::zeros({2, 64}, DType::f32);
  w.data<float>()[3] = 1.0f;
  const Tensor v = unpacked(pack(hqq(w, find_scheme("int3_weight_only_g32_asym")->weights, "w"), "w"));
  for (std::int64_t i = 32; i < v.numel(); ++i) EXPECT_EQ(v.data<float>()[i], 0.0f);
}

TEST(Hqq, RefusesByName) {
  const Tensor w = normal_weight({4, 64}, DType::f32);
  for (const char* name : {"float8_weight_only", "q4_0", "nvfp4_weight_only"})
    expect_failure(ErrorCode::unsupported, "layers.2 cannot be quantized: half-quadratic",
                   [&] { (void)hqq(w, find_scheme(name)->weights, "layers.2"); });
}

}  // namespace
}  // namespace quench
