// float8 casts with stochastic rounding on the GPU, against the CPU's, code by code: the draws of an element are those
// of its row and column in every kernel.

#include <cstring>

#include "core/ops/quantize/quantize.h"
#include "tests/cuda/quantize/quantize_testing.h"

namespace quench::testing {
namespace {

const RandomKey kKey{0x123456789ABCDEFull, hash64("model.layers.0.mlp.down_proj.output_gradient"), (7ull << 32) + 3};

// A payload on the GPU of one byte everywhere, `shift` bytes off an aligned address.
Tensor poisoned(const Shape& shape, DType dtype, std::int64_t shift) {
  const Tensor host = Tensor::empty({shape.numel() + shift}, dtype);
  std::memset(host.raw_data(), 0xA5, host.nbytes());
  return host.to(kGpu).narrow(0, shift, shape.numel()).view(shape);
}

void check_cast(const Tensor& x, ElementFormat element, Granularity granularity, Wanted wanted, std::int64_t shift,
                const Float8Rounding& rounding) {
  const Tensor scale =
      granularity == Granularity::tensor ? of({}, {0.37f}) : float8_scale(amax(x, granularity), element, false);
  const Tensor gpu_x = on_gpu(x), gpu_scale = scale.to(kGpu);
  const QuantFormat natural{.element = element, .granularity = granularity};
  QuantFormat transposed = natural;
  transposed.orientation = Orientation::transposed;
  for (int run = 0; run < 2; ++run) {
    Float8CastArgs args{gpu_x, {}, {}, rounding};
    if (wanted != Wanted::transposed)
      args.out = {natural, x.shape(), x.dtype(), poisoned(x.shape(), payload_dtype(element), shift), gpu_scale};
    if (wanted != Wanted::natural)
      args.transposed = {transposed, x.shape(), x.dtype(),
                         poisoned(transposed.payload_shape(x.shape()), payload_dtype(element), shift), gpu_scale};
    float8_cast_slot(DeviceType::cuda, args);
    const auto expected = [&](Orientation orientation) {
      return cast_float8(x, scale, element, granularity, orientation, rounding).payload();
    };
    if (args.out.defined()) {
      EXPECT_TRUE(equal(args.out.payload(), expected(Orientation::natural)));
    }
    if (args.transposed.defined()) {
      EXPECT_TRUE(equal(args.transposed.payload(), expected(Orientation::transposed)));
    }
  }
}

TEST(CudaStochasticFloat8, CastsMatchTheCpu) {
  std::uint64_t seed = 3000;
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{16, 16}, Shape{8, 16}, Shape{37, 64}, Shape{127, 129},
                             Shape{129, 127}, Shape{257, 384}, Shape{2, 48, 40}, Shape{3, 2, 65, 33}, Shape{1296, 272},
                             Shape{1, 3000}, Shape{3000, 1}, Shape{5, 16400}, Shape{16, 4104}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Granularity granularity : {Granularity::tensor, Granularity::row, Granularity::column})
        for (const Wanted wanted : {Wanted::natural, Wanted::transposed, Wanted::both}) {
          if (granularity == Granularity::row && wanted != Wanted::natural) continue;
          ++seed;
          const std::int64_t x_shift = seed % 3 == 0 ? 1 : 0, out_shift = seed % 3 == 1 ? 8 : seed % 3 == 2 ? 1 : 0;
          const Tensor x = input(shape, dtype, x_shift, seed);
          if (seed % 2 == 0) spoil(x, 211);
          SCOPED_TRACE(fmt::format("{} {} by {} wanted {} shifts {} {} seed {}", shape.to_string(), to_string(dtype),
                                   to_string(granularity), static_cast<int>(wanted), x_shift, out_shift, seed));
          check_cast(x, seed % 4 < 2 ? ElementFormat::e4m3 : ElementFormat::e5m2, granularity, wanted, out_shift,
                     {kKey, seed % 5 == 0 ? (std::uint64_t{1} << 31) + 5 : 0});
        }
}

// Every plan of the kernel by rows, its last column and the first beyond, with and without the columns' maxima.
TEST(CudaStochasticFloat8, RowsMatchTheCpu) {
  std::uint64_t seed = 4000;
  for (const Shape& shape : {Shape{1, 1}, Shape{5, 37}, Shape{1, 8}, Shape{3, 2048}, Shape{70, 2056}, Shape{9, 4096},
                             Shape{5, 4104}, Shape{5, 8200}, Shape{3, 16384}, Shape{3, 16392}, Shape{2, 32768},
                             Shape{2, 32776}, Shape{4000, 24}, Shape{3, 50, 64}, Shape{2, 3, 7, 9}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t shift : {0, 1}) {
        ++seed;
        const ElementFormat element = seed % 4 < 2 ? ElementFormat::e4m3 : ElementFormat::e5m2;
        const bool power_of_two = seed % 3 == 0;
        const Tensor x = input(shape, dtype, shift, seed);
        if (seed % 2 == 0) spoil(x, 1013);
        const Tensor gpu_x = on_gpu(x);
        SCOPED_TRACE(fmt::format("{} {} shift {} seed {}", shape.to_string(), to_string(dtype), shift, seed));
        const QuantFormat by_column{.element = element, .granularity = Granularity::column};
        const Tensor most = Tensor::zeros(by_column.scales_shape(shape), DType::f32), gpu_most = most.to(kGpu);
        const Float8Rounding rounding{kKey, seed % 5};
        const QuantTensor expected = quantize_float8_rows(x, element, power_of_two, most, rounding);
        for (const Tensor& columns : {Tensor(), gpu_most}) {
          const QuantTensor got = quantize_float8_rows(gpu_x, element, power_of_two, columns, rounding);
          EXPECT_TRUE(equal(got.scales(), expected.scales()));
          EXPECT_TRUE(equal(got.payload(), expected.payload()));
        }
        EXPECT_TRUE(equal(gpu_most, most));
      }
}

TEST(CudaStochasticFloat8, LargePairAndColumns) {
  const Tensor some = random_tensor<bfloat16>({1 << 16}, 9), x = Tensor::empty({4096, 2048}, DType::bf16);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<bfloat16>()[i] = some.data<bfloat16>()[i * 7 % 65521];
  const Tensor gpu = on_gpu(x), scale = float8_scale(amax(x, Granularity::tensor), ElementFormat::e5m2, false);
  const Float8Rounding rounding{kKey};
  const Float8Pair got = cast_float8_pair(gpu, scale.to(kGpu), ElementFormat::e5m2, rounding),
                   expected = cast_float8_pair(x, scale, ElementFormat::e5m2, rounding);
  EXPECT_TRUE(equal(got.natural.payload(), expected.natural.payload()));
  EXPECT_TRUE(equal(got.transposed.payload(), expected.transposed.payload()));
  const auto turned = [&](const Tensor& t, const Tensor& by) {
    return cast_float8(t, by, ElementFormat::e4m3, Granularity::column, Orientation::transposed, rounding).payload();
  };
  const Tensor by_column = float8_scale(amax(x, Granularity::column), ElementFormat::e4m3, true);
  EXPECT_TRUE(equal(turned(gpu, by_column.to(kGpu)), turned(x, by_column)));
}

TEST(CudaStochasticFloat8, EmptyInputsDoNothing) {
  const Tensor none = Tensor::empty({0, 16}, DType::bf16, kGpu);
  const Float8Pair pair = cast_float8_pair(none, of({}, {1}).to(kGpu), ElementFormat::e5m2, {kKey});
  EXPECT_EQ(pair.transposed.payload().shape(), (Shape{16, 0}));
  EXPECT_EQ(quantize_float8_rows(none, ElementFormat::e4m3, true, Tensor(), {kKey}).payload().shape(), (Shape{0, 16}));
}

}  // namespace
}  // namespace quench::testing
