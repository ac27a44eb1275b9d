// The tensor cores' float8 products against the exact products of the same operands.

#include "core/ops/scaled_gemm.h"

#include <gmock/gmock.h>

#include <set>

#include "core/cuda/gemm/gemm_problem.h"
#include "core/device/determinism.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/ops/quantize/quantize.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

using ::testing::HasSubstr;

struct Operand {
  ElementFormat element = ElementFormat::e4m3;
  Granularity granularity = Granularity::tensor;
  bool power_of_two = false;
};
constexpr Operand kTensor{}, kRow{ElementFormat::e4m3, Granularity::row},
    kTensorE5m2{ElementFormat::e5m2, Granularity::tensor}, kRowE5m2{ElementFormat::e5m2, Granularity::row};

struct ScaledCase {
  std::int64_t m, n, k;
  Operand a, b;
  DType c = DType::bf16;
  float beta = 0.0f;
  bool fast = false;
  std::int64_t gap = 0;  // elements between the rows of c
  [[nodiscard]] std::string describe() const {
    return fmt::format("{} x {} x {}, {} {} x {} {} -> {}, beta {}, fast {}, gap {}", m, n, k,
                       quench::to_string(a.element), quench::to_string(a.granularity), quench::to_string(b.element),
                       quench::to_string(b.granularity), quench::to_string(c), beta, fast, gap);
  }
};

QuantTensor quantized(const Tensor& x, const Operand& how) {
  return quantize_float8(
      x, {.element = how.element, .granularity = how.granularity, .power_of_two_scale = how.power_of_two});
}

// Rows of very different size, so that scales by row and by tensor are not alike.
QuantTensor random_operand(Generator& random, std::int64_t rows, std::int64_t columns, const Operand& how) {
  const Tensor x = random.normal({rows, columns}, DType::f32);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto size = static_cast<float>(std::exp2(random.between(-3, 3)));
    for (std::int64_t c = 0; c < columns; ++c) x.data<float>()[r * columns + c] *= size;
  }
  return quantized(on_gpu(x), how);
}

// The same scales with the magnitudes of the codes.
QuantTensor magnitudes(const QuantTensor& x) {
  const Tensor payload = on_cpu(x.payload());
  auto* codes = static_cast<std::uint8_t*>(payload.raw_data());
  for (std::int64_t i = 0; i < payload.numel(); ++i) codes[i] &= 0x7F;
  return {x.format(), x.shape(), x.source_dtype(), payload.to(kGpu), x.scales()};
}

// C of random values on the GPU; poisoned where it must not be read.
Tensor old_result(Generator& random, const ScaledCase& c) {
  if (c.beta == 0.0f) return poisoned({c.m, c.n}, c.c);
  return on_gpu(random.normal({c.m, c.n}, c.c, 4.0));
}

Tensor with_gap(const Tensor& c, std::int64_t gap) {
  if (gap == 0) return c;
  const Tensor whole = Tensor::zeros({c.size(0), c.size(1) + gap}, c.dtype(), kGpu);
  const Tensor inside = whole.narrow(1, 0, c.size(1));
  copy_rows({c, inside});
  return inside;
}

// What a sum of K products may be off by. The tensor core adds 32 of them at a time to a sum of 13 fraction bits, cut
// off: products lose what lies below the sum's last bit, and the sum loses up to one bit a step. Without fast
// accumulation such sums end after 128 products and are added in f32. Partial sums of random terms grow with sqrt(K),
// and so does what a long one loses next to `magnitude`, the sum of |terms|.
double accumulation_error(std::int64_t k, bool fast, double product, double magnitude) {
  const double in_one_sum = static_cast<double>(fast ? k : std::min<std::int64_t>(k, 128));
  const double terms = fast ? 0x1.0p-11 * std::max(1.0, std::sqrt(in_one_sum / 4096)) : 0x1.0p-12;
  return terms * magnitude + 0x1.0p-13 * std::ceil(in_one_sum / 32) * std::abs(product);
}

void check_against_exact(const ScaledCase& c, std::uint32_t seed) {
  SCOPED_TRACE(c.describe());
  Generator random(seed);
  const QuantTensor a = random_operand(random, c.m, c.k, c.a), b = random_operand(random, c.n, c.k, c.b);
  const Tensor old = old_result(random, c), out = with_gap(old.clone(), c.gap);
  const Tensor product = Tensor::empty({c.m, c.n}, DType::f32, kGpu), sizes = Tensor::empty_like(product);
  gemm_emulated({.a = a, .b = b, .c = product});
  gemm_emulated({.a = magnitudes(a), .b = magnitudes(b), .c = sizes});
  gemm({.a = a, .b = b, .c = out, .beta = c.beta, .fast_accumulation = c.fast});
  const std::vector<double> got = values(on_cpu(out)), before = values(on_cpu(old)), products = values(on_cpu(product)),
                            magnitude = values(on_cpu(sizes));
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double added = c.beta != 0.0f ? c.beta * before[i] : 0.0, expected = products[i] + added;
    // With beta and bf16 the product is rounded before it is added.
    const double roundings = std::abs(expected) + (c.beta != 0.0f ? std::abs(products[i]) : 0.0);
    const double tolerance =
        accumulation_error(c.k, c.fast, products[i], magnitude[i]) + 1.01 * rounding(c.c) * roundings;
    ASSERT_NEAR(got[i], expected, tolerance) << "element " << i;
    signal += expected * expected;
    noise += (got[i] - expected) * (got[i] - expected);
  }
  if (c.c == DType::f32 && !c.fast) {
    EXPECT_GE(10 * std::log10(signal / noise), 55.0);
  }
}

TEST(CudaScaledGemm, EveryForm) {
  std::uint32_t seed = 1;
  const std::pair<Operand, Operand> forms[] = {
      {kTensor, kTensor},     {kRow, kRow},     {kTensor, kRow},  {kRow, kTensor},     {kTensorE5m2, kTensor},
      {kTensor, kTensorE5m2}, {kRowE5m2, kRow}, {kRow, kRowE5m2}, {kTensorE5m2, kRow}, {kRow, kTensorE5m2}};
  for (const auto& [a, b] : forms)
    for (const DType c : {DType::bf16, DType::f32})
      for (const float beta : {0.0f, 1.0f})
        for (const bool fast : {false, true}) check_against_exact({192, 128, 512, a, b, c, beta, fast}, ++seed);
}

TEST(CudaScaledGemm, AnyNumberOfRowsOfA) {
  std::uint32_t seed = 100;
  for (const std::int64_t m : {1, 2, 7, 15, 17, 33, 130, 257})
    for (const auto& form : {kTensor, kRow})
      for (const DType c : {DType::bf16, DType::f32})
        for (const float beta : {0.0f, 1.0f}) check_against_exact({m, 48, 272, form, form, c, beta}, ++seed);
}

TEST(CudaScaledGemm, SmallAndLongContractions) {
  std::uint32_t seed = 200;
  for (const std::int64_t k : {16, 32, 80, 16384})
    for (const auto& form : {kTensor, kRow})
      for (const bool fast : {false, true})
        check_against_exact({96, 64, k, form, form, DType::f32, 0.0f, fast}, ++seed);
}

TEST(CudaScaledGemm, LargeProducts) {
  check_against_exact({2048, 1024, 4096, kTensor, kTensor, DType::bf16, 0.0f, true}, 301);
  check_against_exact({1024, 2048, 4096, kRow, kRow, DType::f32, 1.0f, false}, 302);
}

TEST(CudaScaledGemm, RowsOfCMayBeApart) {
  for (const DType c : {DType::bf16, DType::f32})
    for (const float beta : {0.0f, 1.0f}) {
      const ScaledCase test{37, 64, 128, kRow, kRow, c, beta, false, 16};
      check_against_exact(test, 400);
      Generator random(401);
      const QuantTensor a = random_operand(random, test.m, test.k, kRow),
                        b = random_operand(random, test.n, test.k, kRow);
      if (beta != 0.0f) continue;
      const Tensor out = poisoned({test.m, test.n}, c, Layout::fused);
      gemm({.a = a, .b = b, .c = out});
      EXPECT_TRUE(wrote_all_and_only(out));
    }
}

TEST(CudaScaledGemm, EmptyShapes) {
  Generator random(5);
  for (const Granularity granularity : {Granularity::tensor, Granularity::row})
    for (const float beta : {0.0f, 1.0f})
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{0, 16, 32}, {16, 0, 32}, {5, 7, 0}}) {
        const QuantFormat format{.granularity = granularity};
        const auto operand = [&](std::int64_t rows, std::int64_t columns) {
          const QuantTensor x = QuantTensor::empty(format, {rows, columns}, DType::bf16);
          fill(x.scales(), 1.0);
          return QuantTensor(format, x.shape(), DType::bf16, x.payload().to(kGpu), x.scales().to(kGpu));
        };
        const Tensor old = random.normal({m, n}, DType::bf16), c = on_gpu(old);
        gemm({.a = operand(m, k), .b = operand(n, k), .c = c, .beta = beta});
        std::vector<double> expected = values(old);
        if (beta == 0.0f) std::fill(expected.begin(), expected.end(), 0.0);
        EXPECT_TRUE(close(on_cpu(c), expected, 0, 0));
      }
}

// Rows times powers of two: with power-of-two scales by row the codes stay, and outputs change by exactly that. Scales
// of another axis, or of the tensor, would not do it.
TEST(CudaScaledGemm, PowersOfTwoOfRowsReachTheOutputsExactly) {
  constexpr std::int64_t kM = 80, kN = 96, kK = 256;
  const Operand row{ElementFormat::e4m3, Granularity::row, true},
      tensor{ElementFormat::e4m3, Granularity::tensor, true};
  for (const auto& [how_a, how_b] : {std::pair{row, row}, {row, tensor}, {tensor, row}})
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const bool fast : {false, true}) {
        Generator random(600);
        const Tensor a = random.normal({kM, kK}, DType::bf16), b = random.normal({kN, kK}, DType::bf16);
        const auto product = [&](const Tensor& x, const Tensor& w) {
          const Tensor c = poisoned({kM, kN}, dtype);
          gemm({.a = quantized(on_gpu(x), how_a), .b = quantized(on_gpu(w), how_b), .c = c, .fast_accumulation = fast});
          return values(on_cpu(c));
        };
        const auto multiplied = [&](const Tensor& x, const Operand& how, std::vector<int>& powers) {
          const Tensor result = x.clone();
          for (std::int64_t r = 0; r < x.size(0); ++r) {
            powers.push_back(how.granularity == Granularity::tensor ? 0 : random.coin() ? 20 : -20);
            for (std::int64_t c = 0; c < x.size(1); ++c) {
              const std::int64_t at = r * x.size(1) + c;
              set_element(result, at, std::ldexp(get_element(x, at), powers.back()));
            }
          }
          return result;
        };
        std::vector<int> powers_a, powers_b;
        const Tensor scaled_a = multiplied(a, how_a, powers_a), scaled_b = multiplied(b, how_b, powers_b);
        const std::vector<double> plain = product(a, b), scaled = product(scaled_a, scaled_b);
        for (std::int64_t i = 0; i < kM; ++i)
          for (std::int64_t j = 0; j < kN; ++j) {
            const auto at = static_cast<std::size_t>(i * kN + j);
            ASSERT_EQ(scaled[at], std::ldexp(plain[at], powers_a[static_cast<std::size_t>(i)] +
                                                            powers_b[static_cast<std::size_t>(j)]))
                << i << ", " << j;
          }
      }
}

TEST(CudaScaledGemm, NanReachesItsRowOrColumnOnly) {
  Generator random(7);
  const Tensor a = random.normal({48, 128}, DType::bf16), b = random.normal({64, 128}, DType::bf16);
  set_element(a, 5 * 128 + 3, std::nan(""));
  set_element(b, 9 * 128 + 100, std::nan(""));
  const Tensor c = Tensor::zeros({48, 64}, DType::f32, kGpu);
  gemm({.a = quantized(on_gpu(a), kRow), .b = quantized(on_gpu(b), kRow), .c = c});
  const std::vector<double> got = values(on_cpu(c));
  for (std::int64_t i = 0; i < 48; ++i)
    for (std::int64_t j = 0; j < 64; ++j)
      ASSERT_EQ(std::isnan(got[static_cast<std::size_t>(i * 64 + j)]), i == 5 || j == 9) << i << ", " << j;
}

// Large enough for a contest; every candidate gives the product, added to c once.
TEST(CudaScaledGemm, EveryEntrantOfAContestGivesTheProduct) {
  const GemmTuning tuning;
  Generator random(8);
  const QuantTensor a = random_operand(random, 640, 1024, kRow), b = random_operand(random, 768, 1024, kRow);
  const Tensor exact = Tensor::empty({640, 768}, DType::f32, kGpu), sizes = Tensor::empty_like(exact);
  gemm_emulated({.a = a, .b = b, .c = exact});
  gemm_emulated({.a = magnitudes(a), .b = magnitudes(b), .c = sizes});
  const auto product = values(on_cpu(exact)), magnitude = values(on_cpu(sizes));
  for (int call = 0; call < 150; ++call) {
    const Tensor c = Tensor::empty({640, 768}, DType::f32, kGpu);
    gemm({.a = a, .b = b, .c = c});
    gemm({.a = a, .b = b, .c = c, .beta = 1.0f});
    if (call % 15 != 0) continue;
    const auto got = values(on_cpu(c));
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], 2 * product[i], 2 * accumulation_error(1024, false, product[i], magnitude[i]))
          << "call " << call << ", element " << i;
  }
}

// So large that tiles are tried which cuBLASLt does not propose. Small sums of -1, 0 and 1 are exact in any order.
TEST(CudaScaledGemm, VariationsOfLargeProductsGiveTheProduct) {
  Generator random(41);
  const std::int64_t m = 2048, n = 2304, k = 12288;
  const auto of_signs = [&](std::int64_t rows, const Operand& how) {
    const Tensor x = Tensor::empty({rows, k}, DType::f32);
    for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(random.below(3) - 1);
    Operand exact = how;
    exact.power_of_two = true;
    return quantized(on_gpu(x), exact);
  };
  for (const bool fast : {false, true})
    for (const auto& [left, right] : {std::pair{kTensorE5m2, kTensor}, std::pair{kRow, kRow}}) {
      const QuantTensor a = of_signs(m, left), b = of_signs(n, right);
      const auto product = [&] {
        const Tensor c = poisoned({m, n}, DType::f32);
        gemm({.a = a, .b = b, .c = c, .fast_accumulation = fast});
        return c;
      };
      const Tensor expected = on_cpu(product());
      const GemmTuning tuning;
      for (int call = 0; call < 60; ++call)
        ASSERT_TRUE(same_bits(expected, on_cpu(product()))) << "fast " << fast << ", call " << call;
    }
}

TEST(CudaScaledGemm, DeterministicProductsRepeatBitForBit) {
  Generator random(9);
  const QuantTensor a = random_operand(random, 512, 2048, kRow), b = random_operand(random, 512, 2048, kRow);
  set_deterministic(true);
  std::vector<Tensor> results;
  for (int run = 0; run < 3; ++run) {
    const Tensor c = Tensor::empty({512, 512}, DType::bf16, kGpu);
    gemm({.a = a, .b = b, .c = c});
    results.push_back(on_cpu(c));
  }
  set_deterministic(false);
  EXPECT_TRUE(same_bits(results[0], results[1]));
  EXPECT_TRUE(same_bits(results[0], results[2]));
}

// The key in the file of chosen algorithms: files that were written before float8 products are read still.
TEST(CudaScaledGemm, ProblemsAreToldApart) {
  const Tensor bf16 = Tensor::empty({64, 64}, DType::bf16), f32 = Tensor::empty({64, 64}, DType::f32);
  EXPECT_EQ(
      cuda::GemmProblem::of(GemmArgs{.a = bf16, .b = bf16, .c = f32, .transpose_b = true, .beta = 1.0f}).to_string(),
      "bf16->f32 NT m64 n64 k64 ld 64 64 64 align 16 16 16 add");
  std::set<std::string> keys;
  std::set<std::size_t> hashes;
  std::size_t problems = 0;
  const auto add = [&](const cuda::GemmProblem& problem) {
    ++problems;
    keys.insert(problem.to_string());
    hashes.insert(cuda::GemmProblemHash()(problem));
  };
  add(cuda::GemmProblem::of(GemmArgs{.a = bf16, .b = bf16, .c = bf16, .transpose_b = true}));
  const auto operand = [](const Operand& how) {
    return QuantTensor::empty({.element = how.element, .granularity = how.granularity}, {64, 64}, DType::bf16);
  };
  for (const auto& [a, b] : {std::pair{kTensor, kTensor},
                             {kTensorE5m2, kTensor},
                             {kTensor, kTensorE5m2},
                             {kRow, kRow},
                             {kRowE5m2, kRow},
                             {kRow, kRowE5m2}})
    for (const Tensor& c : {bf16, f32})
      for (const float beta : {0.0f, 1.0f})
        for (const bool fast : {false, true})
          add(cuda::GemmProblem::of(
              ScaledGemmArgs{.a = operand(a), .b = operand(b), .c = c, .beta = beta, .fast_accumulation = fast}));
  EXPECT_EQ(keys.size(), problems);
  EXPECT_EQ(hashes.size(), problems);
  EXPECT_EQ(cuda::GemmProblem::of(ScaledGemmArgs{.a = operand(kRow), .b = operand(kTensorE5m2), .c = bf16}).to_string(),
            "f8_e4m3 x f8_e5m2 by row->bf16 NT m64 n64 k64 ld 64 64 64 align 16 16 16");
}

void expect_unsupported(const ScaledGemmArgs& args, const std::string& words) {
  try {
    gemm(args);
    ADD_FAILURE() << "no error with '" << words << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

TEST(CudaScaledGemm, ShapesThatTensorCoresDoNotTake) {
  Generator random(10);
  const auto operand = [&](std::int64_t rows, std::int64_t columns) {
    return random_operand(random, rows, columns, kRow);
  };
  const auto result = [](std::int64_t m, std::int64_t n) { return Tensor::empty({m, n}, DType::bf16, kGpu); };
  expect_unsupported({.a = operand(32, 40), .b = operand(32, 40), .c = result(32, 32)},
                     "K 40 and N 32 must be multiples of 16 on a GPU; exclude the layer with recipe.filter");
  expect_unsupported({.a = operand(32, 64), .b = operand(24, 64), .c = result(32, 24)}, "K 64 and N 24");
  expect_unsupported(
      {.a = operand(32, 64), .b = operand(32, 64), .c = on_gpu(Generator::empty_view({32, 32}, DType::bf16, 3))},
      "must begin at multiples of 16 bytes");
}

}  // namespace
}  // namespace quench::testing
