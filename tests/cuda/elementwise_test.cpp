#include "core/ops/elementwise.h"

#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

const std::int64_t kSizes[] = {0, 1, 15, 16, 17, 1000, 40001, 1500000};

// n values that start at an aligned address or one element after it.
Tensor vector_of(Generator& random, std::int64_t n, DType dtype, bool aligned, double scale = 1.0) {
  const Tensor t = aligned ? Tensor::empty({n}, dtype) : Tensor::empty({n + 1}, dtype).narrow(0, 1, n);
  random.fill_normal(t, scale);
  return t;
}

TEST(CudaCast, EveryPairOfDtypesRoundsAsTheCpu) {
  const DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  std::uint32_t seed = 1;
  for (const DType from : dtypes)
    for (const DType to : dtypes)
      for (const std::int64_t n : {0, 1, 17, 1000, 40001})
        for (const bool aligned : {true, false}) {
          SCOPED_TRACE(fmt::format("{} to {} n {} aligned {}", to_string(from), to_string(to), n, aligned));
          Generator random(++seed);
          const Tensor x = vector_of(random, n, from, aligned, 10.0), y = Tensor::empty({n}, to);
          const float special[] = {1.00390625f, 1.01171875f, 3.4e38f, -3.4e38f, INFINITY, -INFINITY,
                                   NAN,         1e-45f,      -0.0f,   65520.0f, 65519.0f, 5.9e-8f};
          for (std::int64_t i = 0; i < std::min<std::int64_t>(n, 12); ++i)
            set_element(x, i, static_cast<double>(special[i]));
          const Tensor gpu_y = poisoned({n}, to);
          cast({x, y});
          cast({on_gpu(x), gpu_y});
          EXPECT_TRUE(matches(gpu_y, y, 0, 0));
        }
}

TEST(CudaElementwise, AddAccumulateAndScaleMatchTheCpu) {
  std::uint32_t seed = 200;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t n : kSizes)
      for (const bool aligned : {true, false}) {
        SCOPED_TRACE(fmt::format("{} n {} aligned {}", to_string(dtype), n, aligned));
        Generator random(++seed);
        const Tensor a = vector_of(random, n, dtype, aligned), b = vector_of(random, n, dtype, aligned);
        if (n > 20) {
          set_element(a, 3, std::nan(""));
          set_element(b, 5, INFINITY);
        }
        const Tensor gpu_a = on_gpu(a), gpu_b = on_gpu(b), gpu_out = poisoned({n}, dtype);
        const Tensor out = Tensor::empty({n}, dtype);
        add({a, b, out});
        add({gpu_a, gpu_b, gpu_out});
        EXPECT_TRUE(matches(gpu_out, out, 0, 0));
        add({gpu_a, gpu_b, gpu_a});
        EXPECT_TRUE(matches(gpu_a, out, 0, 0));
        for (const DType other : {DType::f32, DType::bf16}) {
          const Tensor x = vector_of(random, n, other, aligned), total = on_gpu(b), expected = b.clone();
          accumulate({x, expected, 0.3f});
          accumulate({on_gpu(x), total, 0.3f});
          EXPECT_TRUE(matches(total, expected, 0, 0));
        }
        const Tensor scaled = b.clone();
        scale({scaled, -1.5f});
        scale({gpu_b, -1.5f});
        EXPECT_TRUE(matches(gpu_b, scaled, 0, 0));
      }
}

TEST(CudaCopyRows, HonoursBothStrides) {
  std::uint32_t seed = 400;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& shape : {Shape{1, 1}, Shape{9, 13}, Shape{300, 64}, Shape{70, 4096}, Shape{3000, 40}})
      for (const Layout from_layout : kLayouts)
        for (const Layout to_layout : kLayouts) {
          Generator random(++seed);
          const Tensor from = normal(random, shape, dtype, from_layout), to = poisoned(shape, dtype, to_layout);
          copy_rows({on_gpu(from), to});
          EXPECT_EQ(values(on_cpu(to)), values(from));
          EXPECT_TRUE(wrote_all_and_only(to));
        }
  Generator random(2);
  const Tensor ids = random.integers(12, 1 << 30).view({3, 4}), copy = Tensor::empty({3, 4}, DType::i32, kGpu);
  copy_rows({on_gpu(ids), copy});
  EXPECT_TRUE(same_bits(on_cpu(copy), ids));
  std::vector<std::uint8_t> numbers(15);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint8_t>(i * 17);
  const Tensor bytes = Tensor::from_values<std::uint8_t>({3, 5}, numbers), part = Tensor::empty({3, 3}, DType::u8);
  const Tensor gpu_part = Tensor::empty({3, 3}, DType::u8, kGpu);
  copy_rows({bytes.narrow(1, 1, 3), part});
  copy_rows({on_gpu(bytes).narrow(1, 1, 3), gpu_part});
  EXPECT_TRUE(same_bits(on_cpu(gpu_part), part));
  copy_rows({Tensor::empty({0, 4}, DType::f32, kGpu), Tensor::empty({0, 4}, DType::f32, kGpu)});
}

TEST(CudaCopyRows, PutsRowsWhereTheyAreWanted) {
  Generator random(3);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t width : {1, 13, 64, 1000})
      for (const std::int64_t gap : {0, 3}) {
        const Tensor from = random.normal_view({9, width}, dtype, gap), to = random.normal({40, width}, dtype);
        // Two of them lie outside.
        const std::vector<std::int32_t> wanted{39, 0, 17, -1, 40, 3, 4, 5, 20};
        const Tensor rows = Tensor::from_values<std::int32_t>({9}, wanted), gpu_to = on_gpu(to);
        copy_rows({on_gpu(from), gpu_to, on_gpu(rows)});
        copy_rows({from, to, rows});
        EXPECT_TRUE(same_bits(on_cpu(gpu_to), to));
      }
}

TEST(CudaColumnSum, MatchesTheCpu) {
  std::uint32_t seed = 500;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool wide : {false, true})
      for (const bool accumulate : {false, true})
        for (const Shape& shape :
             {Shape{1, 1}, Shape{31, 17}, Shape{33, 64}, Shape{1500, 40}, Shape{600, 1032}, Shape{0, 5}})
          for (const Layout layout : {Layout::contiguous, Layout::unaligned}) {
            SCOPED_TRACE(
                fmt::format("{} wide {} accumulate {} {}", to_string(dtype), wide, accumulate, shape.to_string()));
            Generator random(++seed);
            const Tensor x = normal(random, shape, dtype, layout);
            const Tensor out = random.normal({shape[1]}, wide ? DType::f32 : dtype), gpu_x = on_gpu(x);
            const Tensor gpu_out = accumulate ? on_gpu(out) : poisoned(out.shape(), out.dtype());
            const Tensor again = accumulate ? on_gpu(out) : poisoned(out.shape(), out.dtype());
            column_sum({x, out, accumulate});
            column_sum({gpu_x, gpu_out, accumulate});
            column_sum({gpu_x, again, accumulate});
            EXPECT_TRUE(matches(gpu_out, out, one_step(out.dtype()) + 1e-6, 1e-4));
            EXPECT_TRUE(same_bits(on_cpu(gpu_out), on_cpu(again)));
          }
}

}  // namespace
}  // namespace quench::testing
