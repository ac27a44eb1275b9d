#include "core/ops/adapters/row_adapters.h"

#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Ranks whose sums are independent, to hide the latency of one.
constexpr std::int64_t kRanks = 4;
constexpr std::int64_t kColumns = 512;

// hidden[j] = a[j] x for `count` rows of A, at most kRanks.
template <class T>
void hidden_of(const T* x, const T* a, std::int64_t width, std::int64_t count, float* hidden) {
  F32 sums[kRanks] = {};
  const T* lines[kRanks];
  // Lines beyond `count` repeat the last one.
  for (std::int64_t j = 0; j < kRanks; ++j) lines[j] = a + std::min(j, count - 1) * width;
  for_vectors(width, [&](std::int64_t k, auto lanes) {
    const F32 value = load(x + k, lanes);
    for (std::int64_t j = 0; j < kRanks; ++j) sums[j] = fma(load(lines[j] + k, lanes), value, sums[j]);
  });
  for (std::int64_t j = 0; j < count; ++j) hidden[j] = reduce_add(sums[j]);
}

template <class T>
void run(const RowAdaptersArgs& args) {
  const std::int64_t m = args.x.size(0), k = args.x.size(1), r = args.a.size(1);
  const std::int64_t x_step = args.x.stride(0), y_step = args.y.stride(0);
  const T *x = args.x.data<T>(), *a = args.a.data<T>();
  const std::int32_t* rows = args.rows.data<std::int32_t>();
  T* y = args.y.data<T>();
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor all_hidden = Tensor::empty({m, r}, DType::f32);
  float* hidden = all_hidden.data<float>();

  const std::int64_t groups = (r + kRanks - 1) / kRanks;
  parallel_ranges(m * groups, m * r * k, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t row = item / groups, first = item % groups * kRanks;
      if (rows[row] < 0) continue;
      hidden_of(x + row * x_step, a + (rows[row] * r + first) * k, k, std::min(kRanks, r - first),
                hidden + row * r + first);
    }
  });
  for (const RowAdapterPart& part : args.parts) {
    const std::int64_t ranks = part.b.size(1), n = part.b.size(2), blocks = (n + kColumns - 1) / kColumns;
    const T* b = part.b.data<T>();
    parallel_ranges(m * blocks, m * ranks * n, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        const std::int64_t row = item / blocks, first = item % blocks * kColumns;
        if (rows[row] < 0) continue;
        const T* of_row = b + rows[row] * ranks * n + first;
        const float* values = hidden + row * r + part.rank_begin;
        T* out = y + row * y_step + part.column + first;
        for_vectors(std::min(kColumns, n - first), [&](std::int64_t i, auto lanes) {
          F32 sum{};
          for (std::int64_t rank = 0; rank < ranks; ++rank)
            sum = fma(broadcast(values[rank]), load(of_row + rank * n + i, lanes), sum);
          store(out + i, load(out + i, lanes) + sum, lanes);
        });
      }
    });
  }
}

void row_adapters_kernel(const RowAdaptersArgs& args) {
  dispatch<float, bfloat16>(args.x.dtype(), "row_adapters", [&]<class T>() { run<T>(args); });
}

QUENCH_CPU_KERNEL(row_adapters_slot, row_adapters_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
