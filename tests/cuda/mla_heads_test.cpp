// Heads of latent attention, and the bias on a router's choice, against the CPU's kernels.

#include "core/ops/mla_heads.h"

#include "core/ops/experts/expert_bias.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

TEST(CudaMlaHeads, MatchTheCpu) {
  const std::vector<MlaHeadsShape> shapes = {
      {.heads = 3, .plain = 5, .rotary = 4, .value = 6, .interleaved = true},
      {.heads = 16, .plain = 128, .rotary = 64, .value = 128, .interleaved = true},
      {.heads = 2, .plain = 0, .rotary = 8, .value = 8, .interleaved = false}};
  for (const MlaHeadsShape& s : shapes)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("{} heads, {}", s.heads, to_string(dtype)));
      constexpr std::int64_t kTokens = 37, kPositions = 50;
      Generator random(static_cast<std::uint32_t>(s.heads));
      const Tensor q = random.normal({kTokens, s.heads * s.width()}, dtype);
      const Tensor kv = random.normal({kTokens, s.heads * (s.plain + s.value)}, dtype);
      const Tensor key = random.normal({kTokens, s.rotary}, dtype);
      const Tensor cos = random.normal({kPositions, s.rotary / 2}, DType::f32);
      const Tensor sin = random.normal({kPositions, s.rotary / 2}, DType::f32);
      const Tensor positions = random.integers(kTokens, kPositions);
      const Shape fused{kTokens, 3 * s.heads * s.width()};
      const double tolerance = dtype == DType::f32 ? 1e-5 : 8e-3;

      const Tensor out = Tensor::empty(fused, dtype), gpu_out = poisoned(fused, dtype);
      mla_heads({q, kv, key, cos, sin, positions, out, s});
      mla_heads({on_gpu(q), on_gpu(kv), on_gpu(key), on_gpu(cos), on_gpu(sin), on_gpu(positions), gpu_out, s});
      EXPECT_TRUE(matches(gpu_out, out, tolerance, 1e-6));

      const Tensor dout = random.normal(fused, dtype);
      const Tensor dq = Tensor::empty_like(q), dkv = Tensor::empty_like(kv), dkey = Tensor::empty_like(key);
      const Tensor gpu_dq = poisoned(q.shape(), dtype), gpu_dkv = poisoned(kv.shape(), dtype),
                   gpu_dkey = poisoned(key.shape(), dtype);
      mla_heads_backward({dout, cos, sin, positions, dq, dkv, dkey, s});
      mla_heads_backward({on_gpu(dout), on_gpu(cos), on_gpu(sin), on_gpu(positions), gpu_dq, gpu_dkv, gpu_dkey, s});
      EXPECT_TRUE(matches(gpu_dq, dq, tolerance, 1e-6));
      EXPECT_TRUE(matches(gpu_dkv, dkv, tolerance, 1e-6));
      EXPECT_TRUE(matches(gpu_dkey, dkey, tolerance, 1e-5));
    }
}

TEST(CudaExpertBias, MatchesTheCpu) {
  Generator random(2);
  for (const std::int64_t experts : {1, 7, 256, 3000}) {
    const Tensor loads = Tensor::empty({experts}, DType::f32);
    for (std::int64_t e = 0; e < experts; ++e) loads.data<float>()[e] = static_cast<float>(random.below(9));
    const std::int64_t first = experts / 3;
    const Tensor bias = random.normal({experts - first}, DType::f32), gpu = on_gpu(bias);
    update_expert_bias({.counts = loads, .bias = bias, .first = first, .speed = 0.01f});
    update_expert_bias({.counts = on_gpu(loads), .bias = gpu, .first = first, .speed = 0.01f});
    EXPECT_EQ(values(on_cpu(gpu)), values(bias));
  }
}

}  // namespace
}  // namespace quench::testing
