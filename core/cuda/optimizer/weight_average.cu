#include "core/ops/optimizer/weight_average.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/tensor_chunks.cuh"
#include "core/cuda/optimizer/adamw_math.cuh"
#include "core/cuda/optimizer/elements.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256, kChunk = 16 * 1024;

struct Entry {
  Elements param, average;
  std::int64_t numel;
  std::uint64_t philox_key, element_offset;
  bool wide;  // vector-aligned addresses; element_offset aligned to random blocks
};
constexpr int kCapacity = 256;
using Table = ChunkTable<Entry, kCapacity>;
static_assert(sizeof(Table) + sizeof(float) + sizeof(std::uint64_t) <= kMaxParameterBytes);

template <int N>
__device__ void update(const Entry& e, float share, std::uint64_t step, std::int64_t i) {
  const Vector<float, N> p = e.param.load<N>(i);
  Vector<float, N> a = e.average.load<N>(i);
#pragma unroll
  for (int j = 0; j < N; ++j) a[j] = fmaf(share, p[j] - a[j], a[j]);
  if (!e.average.is_bf16) return e.average.store(i, a);
  const RandomBits<1u << number_of(AdamWRounding::param), N> random(e.philox_key, step, e.element_offset + i);
  e.average.store_stochastic(i, a, random, AdamWRounding::param);
}

// Bytes: param and average read, average written.
__global__ __launch_bounds__(kThreads) void weight_average_kernel(const __grid_constant__ Table table, float share,
                                                                  std::uint64_t step) {
  const TensorChunk chunk = table.chunk<kChunk>();
  chunk.for_each<kThreads>([&]<int N>(std::int64_t i) { update<N>(chunk.entry, share, step, i); });
}

Entry entry(const WeightAverageArgs& args, const AveragedTensor& t) {
  return {.param = Elements::of(t.param),
          .average = Elements::of(t.average),
          .numel = t.param.numel(),
          .philox_key = philox_key(args.seed, t.random_stream),
          .element_offset = static_cast<std::uint64_t>(t.element_offset),
          .wide = are_wide({&t.param, &t.average}) && t.element_offset % 8 == 0};
}

void weight_average(const WeightAverageArgs& args) {
  const AveragedTensor& first = args.tensors.front();
  const OpLaunch launch("average_weights", {&first.param, &first.average});
  const auto launch_table = [&](const Table& table) {
    launch(weight_average_kernel, dim3(static_cast<unsigned>(table.chunks())), kThreads, 0, table,
           static_cast<float>(1 - args.decay), static_cast<std::uint64_t>(args.step));
  };
  for_tables<Table>(
      args.tensors, kChunk, &Entry::numel, [&](const AveragedTensor& t) { return entry(args, t); }, launch_table);
}

QUENCH_CUDA_KERNEL(weight_average_slot, weight_average);

}  // namespace
}  // namespace quench::cuda
