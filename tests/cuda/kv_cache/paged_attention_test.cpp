// Paged KV caches on the GPU against the CPU's kernel.

#include "core/ops/kv_cache/paged_attention.h"

#include "tests/core/ops/kv_cache/paged_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

PagedProblem gpu_copy(const PagedProblem& p) {
  PagedProblem gpu = p;
  for (Tensor PagedProblem::*member :
       {&PagedProblem::qkv, &PagedProblem::cos, &PagedProblem::sin, &PagedProblem::positions, &PagedProblem::pages,
        &PagedProblem::cache, &PagedProblem::scales, &PagedProblem::sinks})
    gpu.*member = on_gpu(p.*member);
  return gpu;
}

Tensor attend(const PagedProblem& p) {
  const Tensor out = Tensor::empty({p.sequences(), p.heads * p.dim()}, p.qkv.dtype(), p.qkv.device());
  paged_attention(p.args(out));
  return on_cpu(out);
}

TEST(CudaPagedAttention, MatchesTheCpu) {
  Generator random(1);
  for (const PagedShape& shape : paged_shapes()) {
    const PagedProblem p = make_paged(random, shape), gpu = gpu_copy(p);
    SCOPED_TRACE(fmt::format("{} cache {} heads {}/{} window {} chunk {}", p.qkv.describe(), p.cache.describe(),
                             p.heads, p.kv_heads, p.window, p.chunk));
    const Tensor out = attend(gpu);
    const Tensor expected = Tensor::empty(out.shape(), out.dtype());
    paged_attention(p.args(expected));
    EXPECT_TRUE(close(out, values(expected), 2 * rounding(p.qkv.dtype()), p.qkv.dtype() == DType::f32 ? 1e-5 : 1e-2));
    if (!p.scales.defined()) {
      EXPECT_TRUE(same_bits(on_cpu(gpu.cache), p.cache));
    }
  }
}

TEST(CudaPagedAttention, ARowHasTheBitsOfItsSequenceAlone) {
  Generator random(2);
  for (const PagedShape& shape :
       {PagedShape{.positions = {0, 255, 256, 700, 3, 1023, 90, 5}, .heads = 8, .kv_heads = 2, .page = 32},
        PagedShape{.positions = {900, 2, 600}, .dim = 128, .page = 32, .codes = DType::f8_e4m3}}) {
    const PagedProblem p = make_paged(random, shape);
    const Tensor out = attend(gpu_copy(p));
    for (std::int64_t i = 0; i < p.sequences(); ++i) {
      PagedProblem one = p;
      one.qkv = p.qkv.narrow(0, i, 1).clone();
      one.positions = p.positions.narrow(0, i, 1).clone();
      one.pages = p.pages.narrow(0, i, 1).narrow(1, 0, p.position(i) / p.page + 1).clone();
      EXPECT_TRUE(same_bits(attend(gpu_copy(one)), out.narrow(0, i, 1).clone())) << i;
    }
  }
}

}  // namespace
}  // namespace quench::testing
