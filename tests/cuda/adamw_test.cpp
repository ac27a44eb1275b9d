#include "core/ops/optimizer/adamw.h"

#include <functional>

#include "core/ops/optimizer/split_weights.h"
#include "core/ops/quantize/quantize.h"
#include "tests/core/ops/golden_file.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

AdamWTensor parameters_on_gpu(const AdamWTensor& t) {
  AdamWTensor result = t;
  for (Tensor AdamWTensor::*part :
       {&AdamWTensor::param, &AdamWTensor::grad, &AdamWTensor::exp_avg, &AdamWTensor::exp_avg_sq, &AdamWTensor::master})
    result.*part = testing::on_gpu(t.*part);
  return result;
}

std::vector<AdamWTensor> parameters_on_gpu(const std::vector<AdamWTensor>& list) {
  std::vector<AdamWTensor> result;
  for (const AdamWTensor& t : list) result.push_back(parameters_on_gpu(t));
  return result;
}

// Equal bits; where one is NaN so is the other, with any payload: x86 and the GPU pick different ones. The instruction
// that x86 has for rounding to bf16 takes subnormals for zero, so that below the smallest normal bf16 may be 0.
::testing::AssertionResult equal(const Tensor& gpu, const Tensor& expected) {
  const Tensor actual = on_cpu(gpu);
  if (expected.dtype() == DType::i16) return ::testing::AssertionResult(same_bits(actual, expected));
  for (std::int64_t i = 0; i < expected.numel(); ++i) {
    const bool is_bf16 = expected.dtype() == DType::bf16;
    const std::uint32_t a =
        is_bf16 ? actual.data<bfloat16>()[i].bits : bit_cast<std::uint32_t>(actual.data<float>()[i]);
    const std::uint32_t e =
        is_bf16 ? expected.data<bfloat16>()[i].bits : bit_cast<std::uint32_t>(expected.data<float>()[i]);
    if (a == e) continue;
    const double x = get_element(actual, i), y = get_element(expected, i);
    const bool flushed = is_bf16 && std::abs(x) <= 0x1p-126 && y == 0.0;
    if (!flushed && !(std::isnan(x) && std::isnan(y)))
      return ::testing::AssertionFailure() << "element " << i << " of " << expected.numel() << " is "
                                           << get_element(actual, i) << ", expected " << get_element(expected, i);
  }
  return ::testing::AssertionSuccess();
}

void expect_equal(const std::vector<AdamWTensor>& gpu, const std::vector<AdamWTensor>& expected) {
  for (std::size_t i = 0; i < gpu.size(); ++i) {
    EXPECT_TRUE(equal(gpu[i].param, expected[i].param)) << "param of tensor " << i;
    EXPECT_TRUE(equal(gpu[i].exp_avg, expected[i].exp_avg)) << "exp_avg of tensor " << i;
    EXPECT_TRUE(equal(gpu[i].exp_avg_sq, expected[i].exp_avg_sq)) << "exp_avg_sq of tensor " << i;
    if (!expected[i].master.defined()) continue;
    EXPECT_TRUE(equal(gpu[i].master, expected[i].master)) << "master of tensor " << i;
  }
}

AdamWArgs arguments(std::span<const AdamWTensor> tensors, std::int64_t step, bool stochastic) {
  return {.tensors = tensors,
          .lr = 3e-3,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .eps = 1e-8,
          .step = step,
          .stochastic_rounding = stochastic,
          .seed = 17};
}

// Dtypes by bit: 1 param, 2 grad, 4 moments are bf16; 8 with a master, which only a bf16 param has; 16: split. `shift`
// elements off an aligned address.
AdamWTensor make(Generator& random, std::int64_t n, unsigned bits, std::int64_t shift = 0) {
  const auto dtype = [&](unsigned bit) { return (bits & bit) != 0 ? DType::bf16 : DType::f32; };
  const auto shifted = [&](DType type, double scale) {
    return random.normal({n + shift}, type, scale).narrow(0, shift, n);
  };
  AdamWTensor t{.param = shifted(dtype(1), 1.0),
                .grad = shifted(dtype(2), 1.0),
                .exp_avg = shifted(dtype(4), 0.1),
                .exp_avg_sq = shifted(dtype(4), 0.3),
                .weight_decay = random.coin() ? 0.1 : 0.0,
                .random_stream = hash64("tensor") + bits};
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = get_element(t.exp_avg_sq, i);
    set_element(t.exp_avg_sq, i, v * v);
  }
  if ((bits & 8u) != 0) {
    t.master = shifted(DType::f32, 1.0);
    fill(t.param, NAN);  // written only
  }
  if ((bits & 16u) != 0) {
    const Tensor low = Tensor::empty({n + shift}, DType::i16).narrow(0, shift, n);
    split_weights(t.master, t.param, low);
    t.master = low;
  }
  return t;
}

bool is_layout(unsigned bits) {
  return (bits & 8u) != 0 ? (bits & 1u) != 0 : (bits & 16u) == 0;
}

TEST(CudaAdamW, EveryCombinationOfDtypesGivesTheBitsOfTheCpu) {
  Generator random(1);
  for (unsigned bits = 0; bits < 32; ++bits)
    for (const bool stochastic : {false, true}) {
      if (!is_layout(bits)) continue;
      SCOPED_TRACE(fmt::format("dtypes {:05b} stochastic {}", bits, stochastic));
      std::vector<AdamWTensor> tensors;
      for (const std::int64_t n : {1, 7, 0, 2053, 16384 + 9}) tensors.push_back(make(random, n, bits));
      tensors.push_back(make(random, 1025, bits, 1));
      tensors.push_back(make(random, 4096, bits, 4));
      tensors.push_back(make(random, 1000, bits));
      tensors[3].element_offset = 8;
      tensors[4].element_offset = (std::int64_t{1} << 35) - 8192;  // into the counter's second word
      tensors[6].element_offset = 3;
      tensors[7].element_offset = 4;  // within a block of random numbers
      const std::vector<AdamWTensor> gpu = parameters_on_gpu(tensors);
      adamw(arguments(tensors, 3, stochastic));
      adamw(arguments(gpu, 3, stochastic));
      expect_equal(gpu, tensors);
    }
}

TEST(CudaAdamW, ManyTensorsOfSeveralDtypesInOneCall) {
  Generator random(2);
  std::vector<AdamWTensor> tensors;
  for (int i = 0; i < 1500; ++i) {
    tensors.push_back(make(random, random.between(0, 70), i % 7 == 0 ? 15 : i % 3 == 0 ? 0 : 7));
    tensors.back().random_stream = static_cast<std::uint64_t>(i);
  }
  const std::vector<AdamWTensor> gpu = parameters_on_gpu(tensors);
  for (int step = 1; step <= 3; ++step) {
    adamw(arguments(tensors, step, true));
    adamw(arguments(gpu, step, true));
  }
  expect_equal(gpu, tensors);
}

// Zeros, signed zeros, subnormals, the ends of the range, Inf and NaN in every place.
TEST(CudaAdamW, UnusualValuesGiveTheBitsOfTheCpu) {
  const std::vector<double> unusual = {0.0,     -0.0,     1e-45,    -1e-45,     1e-40,   -3e-39, 1.2e-38,  1e-30,
                                       -1e-22,  1e-19,    -1e-12,   1e-9,       -1e-4,   0.5,    -1.0,     3.0,
                                       -1000.0, 1e9,      -1e18,    3e19,       -1e30,   3e38,   INFINITY, -INFINITY,
                                       NAN,     0x1p-126, 0x1p-101, 0x1.9p-101, 0x1p-60, 0x1p40};
  const auto count = static_cast<std::int64_t>(unusual.size());
  for (const unsigned bits : {0u, 7u, 11u, 4u})
    for (const bool stochastic : {false, true})
      for (const double eps : {1e-8, 0.0, 1e-3}) {
        SCOPED_TRACE(fmt::format("dtypes {:05b} stochastic {} eps {}", bits, stochastic, eps));
        Generator random(3);
        std::vector<AdamWTensor> tensors{make(random, 30000, bits)};
        AdamWTensor& t = tensors[0];
        const Tensor& weight = t.master.defined() ? t.master : t.param;
        for (std::int64_t i = 0; i < t.param.numel(); ++i) {
          const auto pick = [&] { return unusual[static_cast<std::size_t>(random.below(count))]; };
          if (random.coin()) set_element(t.grad, i, pick());
          if (random.coin()) set_element(t.exp_avg, i, pick());
          if (random.coin()) set_element(t.exp_avg_sq, i, std::abs(pick()));
          if (random.coin()) set_element(weight, i, pick());
        }
        for (std::int64_t i = 0; i < 1200; ++i) {
          set_element(t.exp_avg_sq, i, i < 600 ? -1.0 : i < 900 ? -1e-30 : -1e-39);
          if (i >= 600) set_element(t.grad, i, 0.0);
        }
        for (std::int64_t i = 1200; i < 2400; ++i) {  // zeros, all and every third, among ordinary numbers
          const bool zero = i < 1800 || i % 3 == 0;
          set_element(t.grad, i, zero ? 0.0 : 0.5);
          set_element(t.exp_avg, i, zero ? 0.0 : -0.25);
          set_element(t.exp_avg_sq, i, zero ? 0.0 : 1e-3);
          set_element(weight, i, 0.01 * static_cast<double>(i));
        }
        const std::vector<AdamWTensor> gpu = parameters_on_gpu(tensors);
        AdamWArgs args = arguments(tensors, 2, stochastic);
        args.eps = eps;
        adamw(args);
        args.tensors = gpu;
        adamw(args);
        expect_equal(gpu, tensors);
      }
}

TEST(CudaAdamW, ExtremeCoefficientsGiveTheBitsOfTheCpu) {
  Generator random(4);
  for (const double beta2 : {0.0, 0.5, 0.999, 1 - 1e-9, 1 - 0x1p-53})
    for (const std::int64_t step : {1, 2, 1000, 1000000}) {
      std::vector<AdamWTensor> tensors{make(random, 5000, 0), make(random, 5000, 7)};
      const std::vector<AdamWTensor> gpu = parameters_on_gpu(tensors);
      AdamWArgs args = arguments(tensors, step, false);
      args.beta2 = beta2;
      adamw(args);
      args.tensors = gpu;
      adamw(args);
      SCOPED_TRACE(fmt::format("beta2 {} step {}", beta2, step));
      expect_equal(gpu, tensors);
    }
}

// Coefficients that leave the moments as they are and make the update minus the quotient.
AdamWArgs quotient_arguments(std::span<const AdamWTensor> tensors, double eps) {
  return {.tensors = tensors,
          .lr = 1.0,
          .beta1 = 1 - 0x1p-53,
          .beta2 = 1 - 0x1p-53,
          .eps = eps,
          .step = std::int64_t{1} << 62};
}

void check_quotients(const std::function<float(std::uint32_t)>& exp_avg,
                     const std::function<float(std::uint32_t)>& exp_avg_sq, double eps) {
  const std::int64_t n = 1 << 24;
  std::vector<AdamWTensor> tensors{{.param = Tensor::zeros({n}, DType::f32),
                                    .grad = Tensor::zeros({n}, DType::f32),
                                    .exp_avg = Tensor::empty({n}, DType::f32),
                                    .exp_avg_sq = Tensor::empty({n}, DType::f32)}};
  for (std::int64_t i = 0; i < n; ++i) {
    tensors[0].exp_avg.data<float>()[i] = exp_avg(static_cast<std::uint32_t>(i));
    tensors[0].exp_avg_sq.data<float>()[i] = exp_avg_sq(static_cast<std::uint32_t>(i));
  }
  const std::vector<AdamWTensor> gpu = parameters_on_gpu(tensors);
  adamw(quotient_arguments(tensors, eps));
  adamw(quotient_arguments(gpu, eps));
  expect_equal(gpu, tensors);
  EXPECT_EQ(tensors[0].exp_avg_sq.data<float>()[12345], exp_avg_sq(12345));
  EXPECT_NE(tensors[0].param.data<float>()[12345], 0.0f);
}

// Every mantissa of exp_avg_sq in two binades: all that a square root depends on up to a power of two.
TEST(CudaAdamW, SquareRootsAreExact) {
  const auto every = [](std::uint32_t i) { return bit_cast<float>(0x3F800000u + i); };
  check_quotients([](std::uint32_t) { return 1.0f; }, every, 0.0);
  check_quotients([](std::uint32_t i) { return bit_cast<float>(0x3F800000u + (i * 2654435761u >> 9)); }, every, 0.0);
}

// Random moments, with mantissas of the same binade and with exponents of the whole range.
TEST(CudaAdamW, QuotientsAreExact) {
  const auto word = [](std::uint32_t i, std::uint64_t stream) { return random_word(RandomKey{8, stream, 0}, i); };
  const auto spread = [&](std::uint32_t i, std::uint64_t stream, std::uint32_t least, std::uint32_t binades) {
    const std::uint32_t w = word(i, stream);
    return bit_cast<float>((least + (w >> 23) % binades) << 23 | (w & 0x007FFFFFu));
  };
  const auto squares = [](std::uint32_t i) {  // exact squares of 12-bit mantissas
    const float root = 1.0f + static_cast<float>(i % 4096) * 0x1p-12f;
    return root * root;
  };
  check_quotients([&](std::uint32_t i) { return spread(i, 1, 127, 1); }, squares, 0.0);
  check_quotients([&](std::uint32_t i) { return spread(i, 2, 20, 200); },
                  [&](std::uint32_t i) { return spread(i, 3, 10, 200); }, 1e-8);
  check_quotients([&](std::uint32_t i) { return spread(i, 4, 127, 2); },
                  [&](std::uint32_t i) { return spread(i, 5, 125, 4); }, 0.25);
}

TEST(CudaAdamW, ScalesGradientsAndSkipsOnNonFiniteScale) {
  Generator random(5);
  std::vector<AdamWTensor> tensors{make(random, 3001, 0), make(random, 3001, 7)};
  const Tensor scale = Tensor::empty({1}, DType::f32);
  for (const float value : {0.3f, 0.0f, NAN, INFINITY, -INFINITY}) {
    const std::vector<AdamWTensor> gpu = parameters_on_gpu(tensors);
    *scale.data<float>() = value;
    AdamWArgs args = arguments(tensors, 1, true);
    args.grad_scale = scale;
    adamw(args);
    args.tensors = gpu;
    args.grad_scale = testing::on_gpu(scale);
    adamw(args);
    SCOPED_TRACE(value);
    expect_equal(gpu, tensors);
  }
}

// Two calls on equal tensors, those of one with amax: the same bits, and the amax of what is stored.
TEST(CudaAdamW, AmaxMatchesStoredParameter) {
  const auto scalar = [] { return Tensor::from_values<float>({}, std::array{1e30f}).to(kGpu); };  // not raised
  const auto check = [](const std::vector<AdamWTensor>& with, const std::vector<AdamWTensor>& without) {
    for (std::size_t i = 0; i < with.size(); ++i) {
      EXPECT_TRUE(equal(with[i].param, on_cpu(without[i].param))) << "param of tensor " << i;
      EXPECT_TRUE(equal(with[i].exp_avg, on_cpu(without[i].exp_avg))) << "exp_avg of tensor " << i;
      EXPECT_TRUE(equal(with[i].exp_avg_sq, on_cpu(without[i].exp_avg_sq))) << "exp_avg_sq of tensor " << i;
      if (!with[i].amax.defined()) continue;
      EXPECT_TRUE(same_bits(on_cpu(with[i].amax), on_cpu(amax(with[i].param, Granularity::tensor)))) << "tensor " << i;
    }
  };
  Generator random(8);
  for (unsigned bits = 0; bits < 32; ++bits)
    for (const bool stochastic : {false, true}) {
      if (!is_layout(bits)) continue;
      SCOPED_TRACE(fmt::format("dtypes {:05b} stochastic {}", bits, stochastic));
      std::vector<AdamWTensor> tensors;
      for (const std::int64_t n : {1, 0, 2053, 3 * 16384 + 9, 4096}) tensors.push_back(make(random, n, bits));
      tensors.push_back(make(random, 1025, bits, 1));
      set_element(tensors[2].grad, 2000, NAN);
      // A decay that leaves the largest weight in the last element of a chunk, and of all chunks.
      const AdamWTensor& spike = tensors[3];
      set_element((bits & 24u) == 8u ? spike.master : spike.param, 3 * 16384 + 8, -50.0);
      const std::vector<AdamWTensor> without = parameters_on_gpu(tensors);
      std::vector<AdamWTensor> with = parameters_on_gpu(tensors);
      for (std::size_t i = 0; i < with.size(); ++i)
        if (i != 4) with[i].amax = scalar();  // one goes without
      adamw(arguments(without, 3, stochastic));
      adamw(arguments(with, 3, stochastic));
      check(with, without);
      EXPECT_GT(*on_cpu(with[3].amax).data<float>(), 40.0f);
      EXPECT_TRUE(std::isnan(*on_cpu(with[2].amax).data<float>()));
      // Nothing is updated, and the amax is that of the params as they are.
      for (AdamWTensor& t : with)
        if (t.amax.defined()) t.amax = scalar();
      AdamWArgs skipped = arguments(with, 4, stochastic);
      skipped.grad_scale = Tensor::from_values<float>({1}, std::array{INFINITY}).to(kGpu);
      adamw(skipped);
      check(with, without);
    }
}

TEST(CudaAdamW, AmaxOfManyTensors) {
  Generator random(10);
  std::vector<AdamWTensor> tensors;
  for (int i = 0; i < 1000; ++i) tensors.push_back(make(random, random.between(0, 70), i % 3 == 0 ? 0 : 7));
  std::vector<AdamWTensor> gpu = parameters_on_gpu(tensors);
  const Tensor all = Tensor::empty({1000}, DType::f32, kGpu);  // side by side, as a trainer may keep them
  for (std::size_t i = 0; i < gpu.size(); ++i)
    if (i % 7 != 0) gpu[i].amax = all.select(0, static_cast<std::int64_t>(i));
  adamw(arguments(gpu, 1, true));
  adamw(arguments(tensors, 1, true));
  expect_equal(gpu, tensors);
  for (std::size_t i = 0; i < gpu.size(); ++i) {
    if (!gpu[i].amax.defined()) continue;
    const Tensor expected = amax(on_cpu(gpu[i].param), Granularity::tensor);
    EXPECT_TRUE(same_bits(Tensor::from_values<float>({}, std::array{on_cpu(all).data<float>()[i]}), expected)) << i;
  }
}

TEST(CudaAdamW, ShardedUpdateRoundsLikeUnsharded) {
  Generator random(6);
  const std::int64_t n = 70001, cut = 33333;
  const std::vector<AdamWTensor> whole = parameters_on_gpu(std::vector{make(random, n, 7)});
  std::vector<AdamWTensor> shards{whole[0], whole[0]};
  for (std::size_t s = 0; s < 2; ++s) {
    for (Tensor AdamWTensor::*part :
         {&AdamWTensor::param, &AdamWTensor::grad, &AdamWTensor::exp_avg, &AdamWTensor::exp_avg_sq})
      shards[s].*part = (shards[s].*part).clone().narrow(0, s == 0 ? 0 : cut, s == 0 ? cut : n - cut);
    shards[s].element_offset = s == 0 ? 0 : cut;
  }
  adamw(arguments(whole, 1, true));
  adamw(arguments(shards, 1, true));
  EXPECT_TRUE(equal(shards[0].param, on_cpu(whole[0].param).narrow(0, 0, cut)));
  EXPECT_TRUE(equal(shards[1].param, on_cpu(whole[0].param).narrow(0, cut, n - cut)));
  EXPECT_TRUE(equal(shards[1].exp_avg_sq, on_cpu(whole[0].exp_avg_sq).narrow(0, cut, n - cut)));
}

TEST(CudaAdamW, LargeTensorAndASecondRunGiveTheSameBits) {
  Generator random(7);
  const AdamWTensor small = make(random, 1 << 16, 7);
  const std::int64_t n = (24 << 20) + 24;
  AdamWTensor large = small;
  for (Tensor AdamWTensor::*part :
       {&AdamWTensor::param, &AdamWTensor::grad, &AdamWTensor::exp_avg, &AdamWTensor::exp_avg_sq}) {
    large.*part = Tensor::empty({n}, DType::bf16);
    for (std::int64_t i = 0; i < n; ++i)
      (large.*part).data<bfloat16>()[i] = (small.*part).data<bfloat16>()[i * 5 % (1 << 16)];
  }
  std::vector<AdamWTensor> tensors{large};
  const std::vector<AdamWTensor> first = parameters_on_gpu(tensors), second = parameters_on_gpu(tensors);
  adamw(arguments(first, 9, true));
  adamw(arguments(second, 9, true));
  adamw(arguments(tensors, 9, true));
  expect_equal(first, tensors);
  expect_equal(second, tensors);
}

TEST(CudaAdamWGolden, ReproducesPyTorchsSixSteps) {
  const GoldenFile file("low_bit_adamw.safetensors");
  AdamWTensor t{.param = testing::on_gpu(file.tensor("adamw.p0")), .weight_decay = 0.1};
  t.exp_avg = Tensor::zeros(t.param.shape(), DType::f32, kGpu);
  t.exp_avg_sq = Tensor::zeros(t.param.shape(), DType::f32, kGpu);
  for (int step = 1; step <= 6; ++step) {
    t.grad = testing::on_gpu(file.tensor(fmt::format("adamw.g{}", step - 1)));
    const std::array list{t};
    adamw({.tensors = list, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = step});
    EXPECT_TRUE(equal(t.param, file.tensor(fmt::format("adamw.p{}", step)))) << "step " << step;
  }
}

}  // namespace
}  // namespace quench::testing
