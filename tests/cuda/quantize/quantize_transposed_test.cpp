// float8 casts of x^T and float8 rows with the columns' maxima on the GPU, against the CPU's, code by code.

#include <cstring>

#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/transpose_codes.h"
#include "tests/cuda/quantize/quantize_testing.h"

namespace quench::testing {
namespace {

// A payload on the GPU that starts `shift` bytes off an aligned address, with guards around it, all of one byte.
struct Guarded {
  static constexpr std::int64_t kGuard = 64;
  static constexpr int kPoison = 0xA5;
  Tensor whole, inner;
  std::int64_t shift = 0;

  Guarded(const Shape& shape, DType dtype, std::int64_t shift_bytes) : shift(shift_bytes) {
    const Tensor host = Tensor::empty({shape.numel() + 2 * kGuard + shift}, dtype);
    std::memset(host.raw_data(), kPoison, host.nbytes());
    whole = host.to(kGpu);
    inner = whole.narrow(0, kGuard + shift, shape.numel()).view(shape);
  }
  void expect_guards_untouched() const {
    const Tensor host = fetch(whole);
    for (std::int64_t i = 0; i < host.numel(); ++i) {
      if (i >= kGuard + shift && i < kGuard + shift + inner.numel()) continue;
      ASSERT_EQ(bytes(host)[i], kPoison) << "written outside of the payload, at " << i - kGuard - shift;
    }
  }
};

// One cast into poisoned memory against the CPU's, twice.
void check_cast(const Tensor& x, ElementFormat element, Granularity granularity, Wanted wanted, std::int64_t shift) {
  // One NaN must not make a tensor's every code NaN here: its scale is a given one.
  const Tensor scale =
      granularity == Granularity::tensor ? of({}, {0.37f}) : float8_scale(amax(x, granularity), element, false);
  const Tensor gpu_x = on_gpu(x), gpu_scale = scale.to(kGpu);
  const QuantFormat natural{.element = element, .granularity = granularity};
  QuantFormat transposed = natural;
  transposed.orientation = Orientation::transposed;
  const auto expected = [&](Orientation orientation) {
    return cast_float8(x, scale, element, granularity, orientation).payload();
  };
  for (int run = 0; run < 2; ++run) {
    const Guarded out(x.shape(), payload_dtype(element), shift),
        turned(transposed.payload_shape(x.shape()), payload_dtype(element), shift);
    Float8CastArgs args{gpu_x, {}, {}};
    if (wanted != Wanted::transposed) args.out = {natural, x.shape(), x.dtype(), out.inner, gpu_scale};
    if (wanted != Wanted::natural) args.transposed = {transposed, x.shape(), x.dtype(), turned.inner, gpu_scale};
    float8_cast_slot(DeviceType::cuda, args);
    if (args.out.defined()) {
      EXPECT_TRUE(equal(out.inner, expected(Orientation::natural)));
      out.expect_guards_untouched();
    }
    if (args.transposed.defined()) {
      EXPECT_TRUE(equal(turned.inner, expected(Orientation::transposed)));
      turned.expect_guards_untouched();
    }
  }
}

TEST(CudaQuantizeTransposed, EveryShapeAndCombinationMatchesTheCpu) {
  std::uint64_t seed = 1000;
  for (const Shape& shape :
       {Shape{1, 1}, Shape{3, 7}, Shape{16, 8}, Shape{16, 16}, Shape{8, 16}, Shape{37, 64}, Shape{128, 128},
        Shape{144, 136}, Shape{127, 129}, Shape{129, 127}, Shape{257, 384}, Shape{2, 48, 40}, Shape{3, 2, 65, 33},
        Shape{1296, 272}, Shape{1, 3000}, Shape{3000, 1}, Shape{16, 4104}, Shape{2064, 24}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Granularity granularity : {Granularity::tensor, Granularity::column})
        for (const Wanted wanted : {Wanted::natural, Wanted::transposed, Wanted::both})
          for (const std::int64_t shift : {0, 1, 8}) {
            ++seed;
            // x, the payloads or both start off an aligned address.
            const std::int64_t x_shift = seed % 3 == 0 ? 0 : shift, out_shift = seed % 3 == 1 ? 0 : shift;
            const Tensor x = input(shape, dtype, x_shift, seed);
            if (seed % 2 == 0) spoil(x, 211);
            SCOPED_TRACE(fmt::format("{} {} by {} wanted {} shifts {} {} seed {}", shape.to_string(), to_string(dtype),
                                     to_string(granularity), static_cast<int>(wanted), x_shift, out_shift, seed));
            check_cast(x, seed % 4 < 2 ? ElementFormat::e4m3 : ElementFormat::e5m2, granularity, wanted, out_shift);
          }
}

TEST(CudaTransposeCodes, EveryShapeMatchesTheCpu) {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{16, 8}, Shape{37, 64}, Shape{128, 128}, Shape{144, 136},
                             Shape{127, 129}, Shape{1296, 272}, Shape{1, 3000}, Shape{3000, 1}, Shape{2064, 24}})
    for (const std::int64_t from_shift : {0, 1, 8})
      for (const std::int64_t to_shift : {0, 8, 16}) {
        SCOPED_TRACE(fmt::format("{} shifts {} {}", shape.to_string(), from_shift, to_shift));
        const QuantTensor codes = quantize_float8(input(shape, DType::bf16, 0, 7), {});
        const Guarded from(shape, DType::f8_e4m3, from_shift), to({shape[1], shape[0]}, DType::f8_e4m3, to_shift);
        Tensor(from.inner).copy_from(codes.payload());
        transpose_codes({from.inner, to.inner});
        EXPECT_TRUE(equal(to.inner, with_transposed_payload(codes).payload()));
        to.expect_guards_untouched();
      }
}

// Scales by column that do not begin at a multiple of 16 bytes.
TEST(CudaQuantizeTransposed, UnalignedScales) {
  const Tensor x = input({64, 48}, DType::bf16, 0, 3);
  const Tensor scale = float8_scale(amax(x, Granularity::column), ElementFormat::e4m3, false);
  const Tensor room = Tensor::zeros({49}, DType::f32);
  const Tensor shifted = room.narrow(0, 1, 48).view({1, 48});
  std::memcpy(shifted.raw_data(), scale.raw_data(), scale.nbytes());
  for (const Orientation orientation : {Orientation::natural, Orientation::transposed})
    EXPECT_TRUE(
        equal(cast_float8(on_gpu(x), on_gpu(shifted), ElementFormat::e4m3, Granularity::column, orientation).payload(),
              cast_float8(x, scale, ElementFormat::e4m3, Granularity::column, orientation).payload()));
}

Tensor repeated_values(const Shape& shape, std::uint64_t seed) {
  const Tensor some = random_tensor<bfloat16>({1 << 16}, seed), x = Tensor::empty(shape, DType::bf16);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<bfloat16>()[i] = some.data<bfloat16>()[i * 7 % 65521];
  return x;
}

TEST(CudaQuantizeTransposed, LargePairAndColumns) {
  const Tensor x = repeated_values({4096, 2048}, 5), gpu = on_gpu(x);
  const Tensor scale = float8_scale(amax(x, Granularity::tensor), ElementFormat::e4m3, false);
  const Float8Pair got = cast_float8_pair(gpu, scale.to(kGpu), ElementFormat::e4m3),
                   expected = cast_float8_pair(x, scale, ElementFormat::e4m3);
  EXPECT_TRUE(equal(got.natural.payload(), expected.natural.payload()));
  EXPECT_TRUE(equal(got.transposed.payload(), expected.transposed.payload()));
  const Tensor by_column = float8_scale(amax(gpu, Granularity::column), ElementFormat::e5m2, true);
  EXPECT_TRUE(equal(
      cast_float8(gpu, by_column, ElementFormat::e5m2, Granularity::column, Orientation::transposed).payload(),
      cast_float8(x, fetch(by_column), ElementFormat::e5m2, Granularity::column, Orientation::transposed).payload()));
}

// More than 2^31 elements, of which the last 16 rows are not zero: the corner of both results.
TEST(CudaQuantizeTransposed, OffsetsBeyondTwoToThe31) {
  constexpr std::int64_t kRows = 65552, kColumns = 32776, kLast = 16, kCorner = 8;
  const Tensor last = repeated_values({kLast, kColumns}, 6), corner = Tensor::zeros({kRows, kCorner}, DType::bf16);
  for (std::int64_t r = 0; r < kLast; ++r)
    std::memcpy(corner.data<bfloat16>() + (kRows - kLast + r) * kCorner,
                last.data<bfloat16>() + (r + 1) * kColumns - kCorner, kCorner * sizeof(bfloat16));
  const Tensor x = Tensor::zeros({kRows, kColumns}, DType::bf16, kGpu);
  x.narrow(0, kRows - kLast, kLast).copy_from(last);
  const Tensor one = of({}, {1.0f});
  const Float8Pair got = cast_float8_pair(x, one.to(kGpu), ElementFormat::e4m3);
  EXPECT_TRUE(
      equal(got.transposed.payload().narrow(0, kColumns - kCorner, kCorner),
            cast_float8(corner, one, ElementFormat::e4m3, Granularity::tensor, Orientation::transposed).payload()));
  EXPECT_TRUE(equal(got.natural.payload().narrow(0, kRows - kLast, kLast),
                    cast_float8(last, one, ElementFormat::e4m3, Granularity::tensor).payload()));
}

// float8 rows with and without column maxima, twice into the same maxima.
void check_rows(const Tensor& x, const Tensor& later, ElementFormat element, bool power_of_two) {
  QuantFormat format{.element = element, .granularity = Granularity::column};
  const Shape per_column = format.scales_shape(x.shape());
  const Tensor most = Tensor::zeros(per_column, DType::f32), gpu_most = on_gpu(most);
  for (const Tensor& t : {x, later}) {
    const QuantTensor expected = quantize_float8_rows(t, element, power_of_two, most);
    const QuantTensor got = quantize_float8_rows(on_gpu(t), element, power_of_two, gpu_most);
    EXPECT_TRUE(equal(got.scales(), expected.scales()));
    EXPECT_TRUE(equal(got.payload(), expected.payload()));
    EXPECT_TRUE(equal(gpu_most, most));
    const QuantTensor plain = quantize_float8_rows(on_gpu(t), element, power_of_two, Tensor());
    EXPECT_TRUE(equal(plain.scales(), expected.scales()));
    EXPECT_TRUE(equal(plain.payload(), expected.payload()));
  }
}

TEST(CudaQuantizeRows, ColumnMaximaMatchTheCpu) {
  std::uint64_t seed = 2000;
  // Each plan of the kernel, its last column and the first beyond; more rows than blocks stay; batches.
  for (const Shape& shape :
       {Shape{1, 1}, Shape{5, 37}, Shape{1, 8}, Shape{3, 2048}, Shape{70, 2056}, Shape{9, 4096}, Shape{5, 4104},
        Shape{5, 8192}, Shape{5, 8200}, Shape{3, 14336}, Shape{3, 16384}, Shape{3, 16392}, Shape{2, 28672},
        Shape{2, 32768}, Shape{2, 32776}, Shape{4000, 24}, Shape{3, 50, 64}, Shape{2, 3, 7, 9}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t shift : {0, 1}) {
        ++seed;
        const Tensor x = input(shape, dtype, shift, seed), later = input(shape, dtype, 0, seed + 10000);
        if (seed % 2 == 0) spoil(x, 1013);
        SCOPED_TRACE(fmt::format("{} {} shift {} seed {}", shape.to_string(), to_string(dtype), shift, seed));
        check_rows(x, later, seed % 4 < 2 ? ElementFormat::e4m3 : ElementFormat::e5m2, seed % 3 == 0);
      }
}

TEST(CudaQuantizeRows, ManyRowsAndASecondRunGiveTheSameBits) {
  const Tensor x = repeated_values({5003, 2048}, 8), gpu = on_gpu(x);
  const Tensor most = Tensor::zeros({1, 2048}, DType::f32);
  const QuantTensor expected = quantize_float8_rows(x, ElementFormat::e4m3, false, most);
  for (int run = 0; run < 2; ++run) {
    const Tensor gpu_most = Tensor::zeros({1, 2048}, DType::f32, kGpu);
    const QuantTensor got = quantize_float8_rows(gpu, ElementFormat::e4m3, false, gpu_most);
    EXPECT_TRUE(equal(got.scales(), expected.scales()));
    EXPECT_TRUE(equal(got.payload(), expected.payload()));
    EXPECT_TRUE(equal(gpu_most, most));
  }
}

TEST(CudaQuantizeRows, ColumnMaximaKeepNanAndEmptyInputsDoNothing) {
  const Tensor before = Tensor::zeros({1, 16}, DType::f32);
  set_element(before, 0, NAN);
  set_element(before, 1, INFINITY);
  set_element(before, 2, 5.0);
  const Tensor x = Tensor::zeros({2, 16}, DType::bf16);
  set_element(x, 1, NAN);
  set_element(x, 2, -4.0);
  set_element(x, 16 + 3, -INFINITY);
  const Tensor most = on_gpu(before);
  (void)quantize_float8_rows(on_gpu(x), ElementFormat::e4m3, false, most);
  const Tensor got = fetch(most);
  EXPECT_TRUE(std::isnan(got.data<float>()[0]));
  EXPECT_TRUE(std::isnan(got.data<float>()[1]));
  EXPECT_EQ(got.data<float>()[2], 5.0f);
  EXPECT_EQ(got.data<float>()[3], INFINITY);
  EXPECT_EQ(got.data<float>()[4], 0.0f);
  (void)quantize_float8_rows(Tensor::empty({0, 16}, DType::bf16, kGpu), ElementFormat::e4m3, false, most);
  EXPECT_TRUE(equal(most, got));
  const Float8Pair pair =
      cast_float8_pair(Tensor::empty({0, 16}, DType::bf16, kGpu), of({}, {1}).to(kGpu), ElementFormat::e4m3);
  EXPECT_EQ(pair.transposed.payload().shape(), (Shape{16, 0}));
}

}  // namespace
}  // namespace quench::testing
