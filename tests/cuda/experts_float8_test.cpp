// Float8 expert GEMMs on the GPU: casts bit for bit as on the CPU, products within the noise of the sums.

#include "core/ops/experts/grouped_float8.h"
#include "core/ops/experts/token_permutation.h"
#include "core/ops/quantize/quantize.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

GroupRows moved(const GroupRows& rows) {
  return {.x = on_gpu(rows.x),
          .ends = on_gpu(rows.ends),
          .pairs = rows.pairs.defined() ? on_gpu(rows.pairs) : Tensor(),
          .choices = rows.choices};
}

// Codes by row and column and the maxima between them.
struct Casts {
  QuantTensor rows;
  Tensor amax;
  GroupColumns columns;
};

Casts cast(const GroupRows& rows, bool power_of_two = true) {
  Casts result;
  result.amax = Tensor::zeros({rows.ends.size(0), rows.x.size(1)}, DType::f32, rows.x.device());
  result.rows = quantize_group_rows(rows, power_of_two, result.amax);
  result.columns = quantize_group_columns(rows, float8_scale(result.amax, ElementFormat::e4m3, power_of_two));
  return result;
}

// `some` may be on either device.
void expect_same(const Casts& some, const Casts& cpu) {
  const auto here = [](const Tensor& t) { return t.device().is_cpu() ? t : on_cpu(t); };
  EXPECT_TRUE(same_bits(here(some.amax), cpu.amax));
  EXPECT_TRUE(same_bits(here(some.rows.scales()), cpu.rows.scales()));
  EXPECT_TRUE(same_bits(here(some.rows.payload()), cpu.rows.payload()));
  EXPECT_TRUE(same_bits(here(some.columns.scales), cpu.columns.scales));
  EXPECT_TRUE(same_bits(here(some.columns.codes), cpu.columns.codes));
}

TEST(CudaExpertsFloat8, CastsMatchCpu) {
  const std::vector<std::vector<std::int32_t>> lists{
      {32, 32, 96, 288}, {0, 0, 0, 320}, {0, 0, 0, 0}, {64, 128, 192, 256}, {320, 320, 320, 320}};
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const std::int64_t width : {16, 200, 2056, 7})
      for (const auto& list : lists) {
        SCOPED_TRACE(fmt::format("{} columns {} ends {}", to_string(dtype), width, fmt::join(list, ",")));
        Generator random(static_cast<std::uint32_t>(width));
        const GroupRows rows{.x = random.normal({320, width}, dtype, 3.0), .ends = ends_of(list), .pairs = {}};
        for (const bool power_of_two : {true, false})
          expect_same(cast(moved(rows), power_of_two), cast(rows, power_of_two));
      }
}

// Runs of rows that blocks share among them, and more groups than a warp has lanes.
TEST(CudaExpertsFloat8, CastsOfManyRowsMatchCpu) {
  std::vector<std::int32_t> list;
  for (int e = 0; e < 70; ++e) list.push_back(64 * (e + 1 - (e % 5 == 0 ? 1 : 0)));
  Generator random(2);
  for (const std::int64_t width : {512, 5120}) {
    const GroupRows rows{.x = random.normal({4608, width}, DType::bf16, 2.0), .ends = ends_of(list), .pairs = {}};
    expect_same(cast(moved(rows)), cast(rows));
  }
}

TEST(CudaExpertsFloat8, TokensAreReadWhereTheyAre) {
  Generator random(7);
  const std::int64_t tokens = 150, choices = 3, experts = 5;
  const Tensor chosen = random.integers(tokens * choices, experts).view({tokens, choices});
  const std::int64_t capacity = permuted_row_capacity(tokens * choices, experts, kFloat8GroupAlignment);
  const Tensor counts = Tensor::zeros({experts}, DType::f32), ends = Tensor::zeros({experts}, DType::i32);
  const Tensor places = Tensor::zeros({tokens, choices}, DType::i32), pairs = Tensor::zeros({capacity}, DType::i32);
  token_permutation({chosen, kFloat8GroupAlignment, counts, ends, places, pairs});
  const GroupRows in_place{
      .x = random.normal({tokens, 264}, DType::bf16), .ends = ends, .pairs = pairs, .choices = choices};
  const Tensor copies = Tensor::empty({capacity, 264}, DType::bf16);
  permute_tokens({.x = in_place.x, .pairs = pairs, .choices = choices, .out = copies});
  const Casts of_copies = cast({.x = copies, .ends = ends, .pairs = {}});
  expect_same(cast(in_place), of_copies);
  expect_same(cast(moved(in_place)), of_copies);
}

// Tensor cores cut what they add, 32 products at a time, to about 13 bits below the largest: all that they sum by
// themselves, `steps` times, loses as much at most.
void expect_near(const Tensor& gpu, const Tensor& cpu, const Tensor& magnitude, double steps) {
  const auto got = values(on_cpu(gpu)), wanted = values(cpu), size = values(magnitude);
  ASSERT_EQ(got.size(), wanted.size());
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], wanted[i], 0x1.0p-13 * steps * size[i] + rounding(gpu.dtype()) * std::abs(wanted[i]) * 2.02)
        << i;
    signal += wanted[i] * wanted[i];
    noise += (got[i] - wanted[i]) * (got[i] - wanted[i]);
  }
  EXPECT_GE(signal, 1e5 * noise) << "50 dB";
}

// The same codes without signs: the sums of the magnitudes.
QuantTensor unsigned_codes(const QuantTensor& x) {
  const Tensor payload = x.payload().clone();
  auto* codes = static_cast<std::uint8_t*>(payload.raw_data());
  for (std::int64_t i = 0; i < payload.numel(); ++i) codes[i] &= 0x7F;
  return {x.format(), x.shape(), x.source_dtype(), payload, x.scales()};
}
GroupColumns unsigned_codes(const GroupColumns& x) {
  const GroupColumns result{x.codes.clone(), x.scales};
  auto* codes = static_cast<std::uint8_t*>(result.codes.raw_data());
  for (std::int64_t i = 0; i < result.codes.numel(); ++i) codes[i] &= 0x7F;
  return result;
}
QuantTensor moved(const QuantTensor& x) {
  return {x.format(), x.shape(), x.source_dtype(), on_gpu(x.payload()), on_gpu(x.scales())};
}
GroupColumns moved(const GroupColumns& x) {
  return {on_gpu(x.codes), on_gpu(x.scales)};
}

void check_products(std::int64_t rows, std::int64_t n, std::int64_t k, const std::vector<std::int32_t>& list,
                    std::uint32_t seed) {
  const auto groups = static_cast<std::int64_t>(list.size());
  Generator random(seed);
  const Tensor ends = ends_of(list), gpu_ends = on_gpu(ends);
  const Casts x = cast({.x = random.normal({rows, k}, DType::bf16), .ends = ends, .pairs = {}});
  const Casts dy = cast({.x = random.normal({rows, n}, DType::bf16), .ends = ends, .pairs = {}});
  const QuantTensor w = quantize_float8(random.normal({groups, n, k}, DType::bf16),
                                        {.granularity = Granularity::row, .power_of_two_scale = true});
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const bool fast : {false, true}) {
      SCOPED_TRACE(fmt::format("{} rows {} n {} k {} ends {}{}", to_string(dtype), rows, n, k, fmt::join(list, ","),
                               fast ? ", fast" : ""));
      const auto steps = [&](std::int64_t depth) {
        return static_cast<double>(fast ? depth : std::min<std::int64_t>(depth, 256)) / 32;
      };
      const Tensor y = Tensor::empty({rows, n}, dtype), size = Tensor::empty({rows, n}, DType::f32);
      grouped_gemm(GroupedFloat8GemmArgs{x.rows, w, ends, y});
      grouped_gemm(GroupedFloat8GemmArgs{unsigned_codes(x.rows), unsigned_codes(w), ends, size});
      const Tensor gpu = poisoned({rows, n}, dtype);
      grouped_gemm(GroupedFloat8GemmArgs{moved(x.rows), moved(w), gpu_ends, gpu, fast});
      expect_near(gpu, y, size, steps(k));

      const Shape of_weights{groups, n, k};
      const Tensor dw = Tensor::empty(of_weights, dtype), dw_size = Tensor::empty(of_weights, DType::f32);
      grouped_wgrad(GroupedFloat8WgradArgs{dy.columns, x.columns, ends, dw});
      grouped_wgrad(GroupedFloat8WgradArgs{unsigned_codes(dy.columns), unsigned_codes(x.columns), ends, dw_size});
      const Tensor gpu_dw = poisoned(of_weights, dtype);
      grouped_wgrad(GroupedFloat8WgradArgs{moved(dy.columns), moved(x.columns), gpu_ends, gpu_dw, 0.0f, fast});
      expect_near(gpu_dw, dw, dw_size, steps(rows));
    }
  const Tensor old = random.normal({groups, n, k}, DType::f32), added = on_gpu(old);
  grouped_wgrad(GroupedFloat8WgradArgs{moved(dy.columns), moved(x.columns), gpu_ends, added, 1.0f});
  const Tensor alone = Tensor::empty(old.shape(), DType::f32, kGpu);
  grouped_wgrad(GroupedFloat8WgradArgs{moved(dy.columns), moved(x.columns), gpu_ends, alone});
  const auto sums = values(on_cpu(added)), first = values(old), second = values(on_cpu(alone));
  for (std::size_t i = 0; i < sums.size(); ++i)
    ASSERT_EQ(sums[i], static_cast<float>(first[i]) + static_cast<float>(second[i])) << i;
}

TEST(CudaExpertsFloat8, GemmsMatchCpu) {
  std::uint32_t seed = 70;
  for (const auto& [n, k] : {std::pair{272, 144}, {256, 128}, {48, 528}, {512, 1040}})
    for (const std::vector<std::int32_t>& list : std::vector<std::vector<std::int32_t>>{
             {544, 544, 1056, 1504}, {0, 32, 32, 1536}, {0, 0, 0, 0}, {224, 416, 608, 1024}})
      check_products(1536, n, k, list, ++seed);
  // Few rows, one group, and blocks in pairs: 2,048 rows a group.
  check_products(64, 64, 64, {64}, ++seed);
  check_products(4096, 528, 272, {2080, 4064}, ++seed);
  check_products(2560, 256, 256, {2560}, ++seed);
  std::vector<std::int32_t> many;
  for (int e = 0; e < 70; ++e) many.push_back(32 * (e + 1 - (e % 3 == 0 ? 1 : 0)));
  check_products(2304, 64, 80, many, ++seed);
}

// Numerics 12.2 (a): an index that a product keeps has a scale of its own, and powers of two pass through exactly.
TEST(CudaExpertsFloat8, ScalesOfKeptIndicesPassThrough) {
  Generator random(5);
  const std::int64_t rows = 1024, n = 256, k = 192, groups = 2;
  const Tensor ends = on_gpu(ends_of({480, 1024}));
  const Tensor x = random.normal({rows, k}, DType::bf16), dy = random.normal({rows, n}, DType::bf16),
               w = random.normal({groups, n, k}, DType::bf16);
  const auto powers = [&](std::int64_t count) {
    std::vector<float> list;
    for (std::int64_t i = 0; i < count; ++i)
      list.push_back(std::ldexp(1.0f, static_cast<int>(random.between(-20, 20))));
    return list;
  };
  // t times a factor for each index of `axis`, of all matrices before it.
  const auto times = [](const Tensor& t, const std::vector<float>& factors, bool by_row) {
    const Tensor result = t.clone();
    const std::int64_t columns = t.size(-1);
    for (std::int64_t i = 0; i < t.numel(); ++i) {
      bfloat16& value = result.data<bfloat16>()[i];
      value =
          bfloat16(static_cast<float>(value) * factors[static_cast<std::size_t>(by_row ? i / columns : i % columns)]);
    }
    return result;
  };
  const auto forward = [&](const Tensor& left, const Tensor& right) {
    const Tensor y = poisoned({rows, n}, DType::f32);
    const Casts codes = cast({.x = on_gpu(left), .ends = ends, .pairs = {}});
    grouped_gemm(GroupedFloat8GemmArgs{
        codes.rows, quantize_float8(on_gpu(right), {.granularity = Granularity::row, .power_of_two_scale = true}), ends,
        y});
    return on_cpu(y);
  };
  const auto wgrad = [&](const Tensor& left, const Tensor& right) {
    const Tensor dw = poisoned({groups, n, k}, DType::f32);
    grouped_wgrad(GroupedFloat8WgradArgs{cast({.x = on_gpu(left), .ends = ends, .pairs = {}}).columns,
                                         cast({.x = on_gpu(right), .ends = ends, .pairs = {}}).columns, ends, dw});
    return on_cpu(dw);
  };
  const auto of_rows = powers(rows), of_outputs = powers(groups * n), of_n = powers(n), of_k = powers(k);
  const Tensor y = forward(x, w), scaled_y = forward(times(x, of_rows, true), times(w, of_outputs, true));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < n; ++i)
      ASSERT_EQ(scaled_y.data<float>()[r * n + i], y.data<float>()[r * n + i] * of_rows[static_cast<std::size_t>(r)] *
                                                       of_outputs[static_cast<std::size_t>((r < 480 ? 0 : n) + i)]);
  const Tensor dw = wgrad(dy, x), scaled_dw = wgrad(times(dy, of_n, false), times(x, of_k, false));
  for (std::int64_t i = 0; i < dw.numel(); ++i)
    ASSERT_EQ(scaled_dw.data<float>()[i],
              dw.data<float>()[i] * of_n[static_cast<std::size_t>(i / k % n)] * of_k[static_cast<std::size_t>(i % k)]);
}

// Equal input gives equal bits.
TEST(CudaExpertsFloat8, ProductsRepeat) {
  Generator random(3);
  const Tensor ends = on_gpu(ends_of({512, 1024, 1056, 2048}));
  const Casts x = cast({.x = on_gpu(random.normal({2048, 512}, DType::bf16)), .ends = ends, .pairs = {}});
  const QuantTensor w = quantize_float8(on_gpu(random.normal({4, 768, 512}, DType::bf16)),
                                        {.granularity = Granularity::row, .power_of_two_scale = true});
  const Tensor first = poisoned({2048, 768}, DType::bf16), second = poisoned({2048, 768}, DType::bf16);
  grouped_gemm(GroupedFloat8GemmArgs{x.rows, w, ends, first});
  grouped_gemm(GroupedFloat8GemmArgs{x.rows, w, ends, second});
  EXPECT_TRUE(same_bits(on_cpu(first), on_cpu(second)));
}

TEST(CudaExpertsFloat8, NanStaysInItsRowAndColumn) {
  const Tensor x = Tensor::zeros({1024, 64}, DType::bf16), ends = ends_of({512, 1024});
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<bfloat16>()[i] = bfloat16(1.0f);
  x.data<bfloat16>()[700 * 64 + 5] = bfloat16(NAN);
  const GroupRows rows{.x = x, .ends = ends, .pairs = {}};
  const Casts gpu = cast(moved(rows));
  const Tensor amax = on_cpu(gpu.amax), scales = on_cpu(gpu.rows.scales());
  for (std::int64_t i = 0; i < amax.numel(); ++i) EXPECT_EQ(std::isnan(amax.data<float>()[i]), i == 64 + 5) << i;
  for (std::int64_t r = 0; r < 1024; ++r) EXPECT_EQ(std::isnan(scales.data<float>()[r]), r == 700) << r;
}

TEST(CudaExpertsFloat8, SizesThatTheTensorCoresDoNotTakeAreRefused) {
  const Tensor ends = on_gpu(ends_of({64}));
  const Casts x = cast({.x = Tensor::zeros({64, 24}, DType::bf16, kGpu), .ends = ends, .pairs = {}});
  const QuantTensor w =
      quantize_float8(Tensor::zeros({1, 32, 24}, DType::bf16, kGpu), {.granularity = Granularity::row});
  try {
    grouped_gemm(GroupedFloat8GemmArgs{x.rows, w, ends, Tensor::zeros({64, 32}, DType::bf16, kGpu)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("multiples of 16"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace quench::testing
