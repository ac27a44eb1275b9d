// GGUF blocks and their values: the GPU's values and blocks are the CPU's, bit for bit.

#include "core/ops/quantize/round_gguf.h"

#include <cstring>

#include "core/ops/quantize/quantize_gguf.h"
#include "tests/cuda/quantize/quantize_testing.h"

namespace quench::testing {
namespace {

TEST(CudaRoundGguf, ValuesAndBlocksAreTheCpusBitForBit) {
  std::uint64_t seed = 0;
  for (const BlockFormat& format : block_formats()) {
    if (!can_round_gguf(format.type, DeviceType::cuda)) continue;
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool weighted : {false, true})
        for (const std::int64_t rows : {1, 37}) {
          SCOPED_TRACE(
              fmt::format("{} {}{} {} rows", format.name, to_string(dtype), weighted ? " weighted" : "", rows));
          const Shape shape{rows, 768};
          const Tensor x = input(shape, dtype, 0, ++seed);
          Tensor importance;
          if (weighted) {
            importance = input({768}, DType::f32, 0, ++seed);
            for (std::int64_t i = 0; i < 768; ++i) {
              float& factor = importance.data<float>()[i];
              factor = i % 5 == 0 ? 0.0f : factor * factor;
            }
          }
          const Tensor expected = Tensor::empty(shape, dtype);
          round_gguf({.x = x, .type = format.type, .importance = importance, .out = expected});
          const Tensor gpu = on_gpu(x), out = Tensor::empty(shape, dtype, kGpu);
          const Tensor factors = weighted ? on_gpu(importance) : Tensor();
          round_gguf({.x = gpu, .type = format.type, .importance = factors, .out = out});
          EXPECT_TRUE(equal(out, expected));
          const Shape bytes{rows, 768 / format.elements * format.bytes};
          const Tensor expected_blocks = Tensor::empty(bytes, DType::u8),
                       blocks = Tensor::empty(bytes, DType::u8, kGpu);
          quantize_gguf({x, format.type, importance, expected_blocks});
          quantize_gguf({gpu, format.type, factors, blocks});
          EXPECT_TRUE(equal(blocks, expected_blocks)) << "blocks";
          round_gguf({.x = gpu, .type = format.type, .importance = factors, .out = gpu});
          EXPECT_TRUE(equal(gpu.clone(), expected)) << "in place";
        }
  }
}

// Zeros, one value, outliers, ramps, values near the ends of f16 scales.
TEST(CudaRoundGguf, AwkwardBlocksAreTheCpus) {
  constexpr std::int64_t kRows = 9, kColumns = 256;
  const Tensor x = Tensor::zeros({kRows, kColumns}, DType::f32);
  const auto row = [&](std::int64_t r) { return x.data<float>() + r * kColumns; };
  for (std::int64_t i = 0; i < kColumns; ++i) {
    row(1)[i] = 0.02f;
    row(2)[i] = i == 100 ? 50.0f : 0.01f;
    row(3)[i] = static_cast<float>(i) - 128.0f;
    row(4)[i] = i % 2 == 0 ? 1.0f : -1.0f;
    row(5)[i] = 1e-7f * static_cast<float>(i % 11);
    row(6)[i] = 2000.0f * static_cast<float>(i % 13 - 6);
    row(7)[i] = i < 32 ? -3.0f : 0.0f;
    row(8)[i] = -0.5f - static_cast<float>(i % 3);
  }
  for (const BlockFormat& format : block_formats()) {
    if (!can_round_gguf(format.type, DeviceType::cuda)) continue;
    const Tensor expected = Tensor::empty_like(x), gpu = on_gpu(x),
                 out = Tensor::empty({kRows, kColumns}, DType::f32, kGpu);
    round_gguf({.x = x, .type = format.type, .out = expected});
    round_gguf({.x = gpu, .type = format.type, .out = out});
    EXPECT_TRUE(equal(out, expected)) << format.name;
    const Shape bytes{kRows, kColumns / format.elements * format.bytes};
    const Tensor expected_blocks = Tensor::empty(bytes, DType::u8), blocks = Tensor::empty(bytes, DType::u8, kGpu);
    quantize_gguf({.x = x, .type = format.type, .blocks = expected_blocks});
    quantize_gguf({.x = gpu, .type = format.type, .blocks = blocks});
    EXPECT_TRUE(equal(blocks, expected_blocks)) << format.name;
  }
}

// 573 MB: two pieces.
TEST(CudaRoundGguf, WeightsLargerThanAPieceHaveTheCpusBlocks) {
  const Tensor row = input({1, 4096}, DType::bf16, 0, 3), x = Tensor::empty({70'000, 4096}, DType::bf16);
  for (std::int64_t r = 0; r < x.size(0); ++r) {
    x.narrow(0, r, 1).copy_from(row);
    x.data<bfloat16>()[r * 4096 + r % 4096] = bfloat16(static_cast<float>(r % 97));
  }
  const Tensor by_gpu = quantize_blocks(x, BlockType::q8_0, "x", {}, kGpu),
               by_cpu = quantize_blocks(x, BlockType::q8_0, "x");
  ASSERT_EQ(by_gpu.shape(), by_cpu.shape());
  EXPECT_EQ(std::memcmp(by_gpu.raw_data(), by_cpu.raw_data(), static_cast<std::size_t>(by_cpu.nbytes())), 0);
}

}  // namespace
}  // namespace quench::testing
