#include "core/ops/optimizer/multiplicative_update.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/tensor_chunks.cuh"
#include "core/cuda/optimizer/adamw_math.cuh"
#include "core/cuda/optimizer/elements.cuh"

namespace quench::cuda {
namespace {

// Small chunks spread small tensors over CTAs.
constexpr int kThreads = 256, kChunk = 1024;

struct Entry {
  Elements param, weights, relative;  // weights: master, or param
  std::int64_t numel;
  std::uint64_t philox_key, element_offset;
  bool has_master, rounds;
  bool wide;  // vector-aligned addresses; element_offset aligned to random blocks
};
constexpr int kCapacity = 256;
using Table = ChunkTable<Entry, kCapacity>;
static_assert(sizeof(Table) + sizeof(std::uint64_t) <= kMaxParameterBytes);

template <int N>
__device__ void update(const Entry& e, std::uint64_t step, std::int64_t i) {
  Vector<float, N> p = e.weights.load<N>(i);
  const Vector<float, N> d = e.relative.load<N>(i);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float stepped = d[j] < 0.0f ? p[j] / (1.0f - d[j]) : p[j] * (1.0f + d[j]);
    // NaN propagates, unlike in fminf and fmaxf.
    p[j] = stepped < kLeastRelativeValue  ? kLeastRelativeValue
           : stepped > kMostRelativeValue ? kMostRelativeValue
                                          : stepped;
  }
  if (e.has_master) e.weights.store(i, p);
  if (e.rounds)
    e.param.store_stochastic(
        i, p, RandomBits<1u << number_of(AdamWRounding::param), N>(e.philox_key, step, e.element_offset + i),
        AdamWRounding::param);
  else
    e.param.store(i, p);
}

__global__ __launch_bounds__(kThreads) void multiplicative_update_kernel(const __grid_constant__ Table table,
                                                                         std::uint64_t step) {
  const TensorChunk chunk = table.chunk<kChunk>();
  chunk.for_each<kThreads>([&]<int N>(std::int64_t i) { update<N>(chunk.entry, step, i); });
}

Entry entry(const MultiplicativeUpdateArgs& args, const MultiplicativeUpdateTensor& t) {
  const bool has_master = t.master.defined();
  const Tensor& weights = has_master ? t.master : t.param;
  return {.param = Elements::of(t.param),
          .weights = Elements::of(weights),
          .relative = Elements::of(t.relative),
          .numel = t.param.numel(),
          .philox_key = philox_key(args.seed, t.random_stream),
          .element_offset = static_cast<std::uint64_t>(t.element_offset),
          .has_master = has_master,
          .rounds = args.stochastic_rounding && !has_master && t.param.dtype() == DType::bf16,
          .wide = are_wide({&t.param, &weights, &t.relative}) && t.element_offset % 8 == 0};
}

void multiplicative_update(const MultiplicativeUpdateArgs& args) {
  const MultiplicativeUpdateTensor& first = args.tensors.front();
  const OpLaunch launch("multiplicative_update", {&first.param, &first.relative, &first.master});
  const auto launch_table = [&](const Table& table) {
    launch(multiplicative_update_kernel, dim3(static_cast<unsigned>(table.chunks())), kThreads, 0, table,
           static_cast<std::uint64_t>(args.step));
  };
  for_tables<Table>(
      args.tensors, kChunk, &Entry::numel, [&](const MultiplicativeUpdateTensor& t) { return entry(args, t); },
      launch_table);
}

QUENCH_CUDA_KERNEL(multiplicative_update_slot, multiplicative_update);

}  // namespace
}  // namespace quench::cuda
