// Deterministic embedding gradient, no atomics: a stable sort of (id, position) makes each id a run, summed in order by
// one thread per column.

#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/vector.cuh"
#include "core/ops/embedding.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 128;
// Separate kernel: a frequent id would occupy few threads.
constexpr int kLongRun = 64;
constexpr int kBatch = 32;  // rows in flight, positions in a warp's lanes

struct Runs {
  const std::uint32_t* ids;       // ascending; outside the table: last, as `table_rows`
  const std::int32_t* positions;  // ascending within an id
  std::int64_t count;
  std::uint32_t table_rows;
};

__global__ void number_positions_kernel(const std::int32_t* ids, std::int64_t count, std::uint32_t table_rows,
                                        std::uint32_t* keys, std::int32_t* positions) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const auto id = static_cast<std::uint32_t>(ids[i]);  // negative ids wrap
  keys[i] = id < table_rows ? id : table_rows;
  positions[i] = static_cast<std::int32_t>(i);
}

// At most kLongRun rows: one CTA per sorted position, idle unless a run starts there.
template <class T, class G, int kWidth>
__global__ __launch_bounds__(kThreads) void add_short_runs_kernel(Runs runs, const T* dout, G* dtable,
                                                                  std::int64_t width) {
  const std::int64_t head = blockIdx.x;
  const std::uint32_t id = runs.ids[head];
  if (id == runs.table_rows || (head > 0 && runs.ids[head - 1] == id)) return;
  if (head + kLongRun < runs.count && runs.ids[head + kLongRun] == id) return;
  int length = 1;
  while (head + length < runs.count && runs.ids[head + length] == id) ++length;
  const std::int32_t* positions = runs.positions + head;
  const std::int64_t columns = width / kWidth;
  auto* target = reinterpret_cast<Vector<G, kWidth>*>(dtable + static_cast<std::int64_t>(id) * width);
  for (std::int64_t c = threadIdx.x; c < columns; c += kThreads) {
    float sum[kWidth] = {};
#pragma unroll 4
    for (int row = 0; row < length; ++row) {
      const auto x = reinterpret_cast<const Vector<T, kWidth>*>(dout + positions[row] * width)[c];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] += to_float(x[i]);
    }
    Vector<G, kWidth> total = target[c];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) total[i] = from_float<G>(to_float(total[i]) + sum[i]);
    target[c] = total;
  }
}

__device__ std::int64_t lower_bound(const Runs& runs, std::int64_t low, std::int64_t high, std::uint32_t id) {
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (runs.ids[middle] < id)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Longer runs: by the CTAs of the first covered multiple of kLongRun, one column per thread, kBatch rows in flight, at
// low occupancy.
template <class T, class G>
__global__ __launch_bounds__(kThreads, 4) void add_long_runs_kernel(Runs runs, const T* dout, G* dtable,
                                                                    std::int64_t width, unsigned slices) {
  const std::int64_t probe = static_cast<std::int64_t>(blockIdx.x / slices) * kLongRun;
  const std::uint32_t id = runs.ids[probe];
  if (id == runs.table_rows || (probe > 0 && runs.ids[probe - kLongRun] == id)) return;
  const std::int64_t head = lower_bound(runs, probe > kLongRun ? probe - kLongRun : 0, probe, id);
  if (head + kLongRun >= runs.count || runs.ids[head + kLongRun] != id) return;
  const std::int64_t end = lower_bound(runs, head + kLongRun, runs.count, id + 1);

  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x % slices) * kThreads + threadIdx.x;
  const bool active = column < width;
  const T* from = dout + (active ? column : 0);
  const std::int64_t lane = threadIdx.x % 32;
  const auto position_of = [&](std::int64_t base) { return base + lane < end ? runs.positions[base + lane] : 0; };
  float sum = 0.0f;
  std::int32_t position = position_of(head);
  for (std::int64_t base = head; base < end; base += kBatch) {
    const std::int32_t next = position_of(base + kBatch);
    T rows[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) rows[k] = from[__shfl_sync(0xFFFFFFFFu, position, k) * width];
    const auto count = static_cast<int>(min(static_cast<std::int64_t>(kBatch), end - base));
#pragma unroll
    for (int k = 0; k < kBatch; ++k)
      if (k < count) sum += to_float(rows[k]);
    position = next;
  }
  if (!active) return;
  G* target = dtable + static_cast<std::int64_t>(id) * width + column;
  *target = from_float<G>(to_float(*target) + sum);
}

struct SortedPositions {
  Tensor storage, scratch;
  Runs runs;

  SortedPositions(const EmbeddingBackwardArgs& args, const OpLaunch& launch) {
    const std::int64_t count = args.ids.numel();
    const auto table_rows = static_cast<std::uint32_t>(std::min(args.dtable.size(0), std::int64_t{1} << 31));
    storage = Tensor::empty({4, count}, DType::i32, launch.device());
    auto* unsorted_positions = storage.data<std::int32_t>();
    auto* positions = unsorted_positions + count;
    auto* unsorted_ids = reinterpret_cast<std::uint32_t*>(positions + count);
    auto* ids = unsorted_ids + count;
    constexpr unsigned kBlock = 256;
    launch(number_positions_kernel, dim3(static_cast<unsigned>((count + kBlock - 1) / kBlock)), kBlock, 0,
           args.ids.data<std::int32_t>(), count, table_rows, unsorted_ids, unsorted_positions);
    const auto sort = [&](void* memory, std::size_t& bytes) {
      launch.check(cub::DeviceRadixSort::SortPairs(memory, bytes, unsorted_ids, ids, unsorted_positions, positions,
                                                   static_cast<int>(count), 0, std::bit_width(table_rows),
                                                   launch.stream()));
    };
    std::size_t bytes = 0;
    sort(nullptr, bytes);
    scratch = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8, launch.device());
    sort(scratch.raw_data(), bytes);
    runs = {ids, positions, count, table_rows};
  }
};

template <class T, class G>
void add_runs(const EmbeddingBackwardArgs& args, const OpLaunch& launch) {
  const MemoryScope scope(MemoryCategory::workspace);
  const SortedPositions sorted(args, launch);
  const std::int64_t count = args.ids.numel(), width = args.dout.size(1);
  const T* dout = args.dout.data<T>();
  G* dtable = args.dtable.data<G>();
  // 16 bytes of the wider type.
  constexpr int kWidth = std::min(kVectorWidth<T>, kVectorWidth<G>);
  const auto addresses = reinterpret_cast<std::uintptr_t>(dout) | reinterpret_cast<std::uintptr_t>(dtable);
  const bool wide = addresses % 16 == 0 && width % kWidth == 0;
  launch(wide ? add_short_runs_kernel<T, G, kWidth> : add_short_runs_kernel<T, G, 1>,
         dim3(static_cast<unsigned>(count)), kThreads, 0, sorted.runs, dout, dtable, width);
  if (count <= kLongRun) return;
  const std::int64_t slices = (width + kThreads - 1) / kThreads, probes = (count + kLongRun - 1) / kLongRun;
  launch(add_long_runs_kernel<T, G>, dim3(static_cast<unsigned>(probes * slices)), kThreads, 0, sorted.runs, dout,
         dtable, width, static_cast<unsigned>(slices));
}

void embedding_backward(const EmbeddingBackwardArgs& args) {
  const OpLaunch launch("embedding_backward", {&args.dout, &args.ids, &args.dtable});
  if (args.dtable.size(0) == 0) return;  // all ids out of range
  QUENCH_CHECK(args.ids.numel() <= 0x7FFFFFFF - kLongRun, "embedding_backward: {} positions, at most 2^31 - 65 fit",
               args.ids.numel());
  dispatch<float, bfloat16>(args.dout.dtype(), "embedding_backward", [&]<class T>() {
    dispatch<float, bfloat16>(args.dtable.dtype(), "embedding_backward",
                              [&]<class G>() { add_runs<T, G>(args, launch); });
  });
}

QUENCH_CUDA_KERNEL(embedding_backward_slot, embedding_backward);

}  // namespace
}  // namespace quench::cuda
