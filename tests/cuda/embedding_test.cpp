#include "core/ops/embedding.h"

#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

// `shift` elements off an aligned address.
Tensor shifted(Generator& random, const Shape& shape, DType dtype, std::int64_t shift) {
  return random.normal({shape.numel() + shift}, dtype).narrow(0, shift, shape.numel()).view(shape);
}

bool same_values(const Tensor& gpu, const Tensor& expected) {
  return same_bits(on_cpu(gpu), expected);
}

TEST(CudaEmbedding, CopiesRowsOfAnyWidth) {
  Generator random(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t width : {1, 2, 8, 37, 64, 1000, 4096, 4100})
      for (const std::int64_t shift : {0, 1})
        for (const std::int64_t n : {0, 1, 7, 301}) {
          SCOPED_TRACE(fmt::format("{} width {} shift {} n {}", to_string(dtype), width, shift, n));
          const Tensor table = shifted(random, {50, width}, dtype, shift), ids = random.integers(n, 50);
          const Tensor expected = Tensor::empty({n, width}, dtype), poison = Tensor::empty({n, width}, dtype);
          fill(poison, NAN);
          const Tensor out = on_gpu(poison);
          embedding({table, ids, expected});
          embedding({on_gpu(table), on_gpu(ids), out});
          EXPECT_TRUE(same_values(out, expected));
        }
}

TEST(CudaEmbedding, IdsOutsideTheTableGiveNanRows) {
  Generator random(2);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t width : {33, 64}) {
      const Tensor table = random.normal({10, width}, dtype), ids = random.integers(6, 10);
      ids.data<std::int32_t>()[1] = 10;
      ids.data<std::int32_t>()[3] = -1;
      ids.data<std::int32_t>()[4] = std::numeric_limits<std::int32_t>::max();
      const Tensor out = Tensor::zeros({6, width}, dtype, kGpu);
      embedding({on_gpu(table), on_gpu(ids), out});
      const Tensor got = on_cpu(out);
      for (std::int64_t i = 0; i < 6; ++i)
        for (std::int64_t j = 0; j < width; ++j) {
          const double x = get_element(got, i * width + j);
          if (i == 1 || i == 3 || i == 4)
            ASSERT_TRUE(std::isnan(x)) << i << " " << j;
          else
            ASSERT_EQ(x, get_element(table, ids.data<std::int32_t>()[i] * width + j));
        }
    }
}

void check_backward(const Tensor& dout, const Tensor& ids, const Tensor& dtable) {
  const Tensor gpu_dout = on_gpu(dout), gpu_ids = on_gpu(ids), first = on_gpu(dtable), second = on_gpu(dtable);
  embedding_backward({gpu_dout, gpu_ids, first});
  embedding_backward({gpu_dout, gpu_ids, second});
  embedding_backward({dout, ids, dtable});
  EXPECT_TRUE(same_values(first, dtable));
  EXPECT_TRUE(same_values(second, dtable));
}

TEST(CudaEmbeddingBackward, SumsInTheOrderOfTheCpu) {
  Generator random(3);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool wide : {false, true})
      for (const std::int64_t vocab : {1, 3, 16, 1000})
        for (const std::int64_t n : {1, 7, 64, 65, 66, 900, 4500})
          for (const std::int64_t width : {1, 33, 136}) {
            SCOPED_TRACE(fmt::format("{} wide {} vocab {} n {} width {}", to_string(dtype), wide, vocab, n, width));
            const std::int64_t shift = n == 66 ? 1 : 0;
            check_backward(shifted(random, {n, width}, dtype, shift), random.integers(n, vocab),
                           random.normal({vocab, width}, wide ? DType::f32 : dtype));
          }
}

// Runs of every length around the one from which long runs have a path of their own, at every offset.
TEST(CudaEmbeddingBackward, RunsOfEveryLength) {
  Generator random(4);
  std::vector<std::int32_t> list;
  for (std::int32_t id = 0; id < 140; ++id) list.insert(list.end(), static_cast<std::size_t>(id), id);
  list.insert(list.end(), 2000, 140);
  std::shuffle(list.begin(), list.end(), std::mt19937(5));
  const Tensor ids = Tensor::from_values<std::int32_t>({static_cast<std::int64_t>(list.size())}, list);
  for (const DType dtype : {DType::f32, DType::bf16})
    check_backward(random.normal({ids.numel(), 160}, dtype), ids, random.normal({141, 160}, DType::f32));
}

TEST(CudaEmbeddingBackward, SkipsIdsOutsideTheTable) {
  Generator random(6);
  const Tensor dout = random.normal({500, 40}, DType::bf16), ids = random.integers(500, 9),
               dtable = random.normal({9, 40}, DType::f32);
  const Tensor kept = dout.clone(), bad = ids.clone();
  for (std::int64_t i = 0; i < 500; i += 3) {
    bad.data<std::int32_t>()[i] = i % 2 == 0 ? 9 + static_cast<std::int32_t>(i) : -1 - static_cast<std::int32_t>(i);
    for (std::int64_t j = 0; j < 40; ++j) set_element(kept, i * 40 + j, 0.0);
  }
  const Tensor out = on_gpu(dtable);
  embedding_backward({on_gpu(dout), on_gpu(bad), out});
  embedding_backward({kept, ids, dtable});
  EXPECT_TRUE(close(on_cpu(out), values(dtable), 0, 0));
}

TEST(CudaEmbeddingBackward, KeepsNanInItsRow) {
  Generator random(7);
  const Tensor dout = random.normal({300, 16}, DType::bf16), ids = random.integers(300, 2),
               out = Tensor::zeros({2, 16}, DType::f32, kGpu);
  ids.data<std::int32_t>()[11] = 1;
  set_element(dout, 11 * 16 + 5, NAN);
  embedding_backward({on_gpu(dout), on_gpu(ids), out});
  const Tensor got = on_cpu(out);
  for (std::int64_t i = 0; i < 32; ++i) EXPECT_EQ(std::isnan(get_element(got, i)), i == 16 + 5) << i;
}

TEST(CudaEmbeddingBackward, LargeBatches) {
  Generator random(8);
  const std::int64_t n = 16384, width = 256, vocab = 32000;
  const Tensor dout = random.normal({n, width}, DType::bf16), dtable = Tensor::zeros({vocab, width}, DType::f32);
  Tensor ids = random.integers(n, vocab);
  for (std::int64_t i = 0; i < n; i += 2) ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(5));
  check_backward(dout, ids, dtable);
  for (std::int64_t i = 0; i < n; ++i) ids.data<std::int32_t>()[i] = 31999;
  check_backward(dout, ids, Tensor::zeros({vocab, width}, DType::bf16));
}

}  // namespace
}  // namespace quench::testing
