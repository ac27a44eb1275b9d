#include "core/ops/embedding.h"

#include "tests/core/ops/op_testing.h"

namespace quench {
namespace {

using namespace testing;

TEST(Embedding, CopiesRows) {
  std::uint32_t seed = 1;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t n : {1, 7, 300}) {
      Generator random(++seed);
      const Tensor table = random.normal({50, 37}, dtype), ids = random.integers(n, 50),
                   out = Tensor::empty({n, 37}, dtype);
      embedding({table, ids, out});
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < 37; ++j)
          ASSERT_EQ(get_element(out, i * 37 + j), get_element(table, ids.data<std::int32_t>()[i] * 37 + j));
    }
}

TEST(EmbeddingBackward, AddsTheRowsOfEachId) {
  std::uint32_t seed = 20;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool wide : {false, true})
      for (const std::int64_t vocab : {1, 5, 1000})
        for (const std::int64_t n : {1, 7, 900}) {
          SCOPED_TRACE(fmt::format("{} wide {} vocab {} n {}", to_string(dtype), wide, vocab, n));
          Generator random(++seed);
          const std::int64_t width = 33;
          const Tensor dout = random.normal({n, width}, dtype), ids = random.integers(n, vocab);
          const Tensor dtable = random.normal({vocab, width}, wide ? DType::f32 : dtype);
          std::vector<double> expected = values(dtable);
          const std::vector<double> g = values(dout);
          for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < width; ++j)
              expected[static_cast<std::size_t>(ids.data<std::int32_t>()[i] * width + j)] +=
                  g[static_cast<std::size_t>(i * width + j)];
          embedding_backward({dout, ids, dtable});
          EXPECT_TRUE(close(dtable, expected, rounding(dtable.dtype()) * 1.01,
                            1e-6 * static_cast<double>(n) / static_cast<double>(vocab) + 2e-6));
        }
}

TEST(EmbeddingBackward, BitsDoNotDependOnTheThreadCount) {
  Generator random(3);
  const Tensor dout = random.normal({2000, 64}, DType::bf16), ids = random.integers(2000, 40),
               dtable = Tensor::empty({40, 64}, DType::bf16);
  EXPECT_TRUE(independent_of_threads({dtable}, [&] {
    Tensor(dtable).zero();
    embedding_backward({dout, ids, dtable});
  }));
}

TEST(Embedding, NamesTheBadId) {
  const Tensor table = Tensor::zeros({4, 2}, DType::f32), ids = Tensor::zeros({3}, DType::i32),
               out = Tensor::zeros({3, 2}, DType::f32);
  ids.data<std::int32_t>()[2] = 4;
  try {
    embedding({table, ids, out});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("id 4 at position 2"), std::string::npos) << error.what();
  }
  ids.data<std::int32_t>()[2] = -1;
  EXPECT_THROW(embedding_backward({out, ids, table}), Error);
  EXPECT_THROW(embedding({table, Tensor::zeros({2}, DType::i32), out}), Error);
  embedding({table, Tensor::zeros({0}, DType::i32), Tensor::zeros({0, 2}, DType::f32)});
}

}  // namespace
}  // namespace quench
