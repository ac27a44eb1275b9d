#include "core/ops/embedding.h"

#include <cstring>

#include "core/cpu/parallel.h"
#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void embedding_kernel(const EmbeddingArgs& args) {
  const std::int64_t n = args.ids.size(0), row_bytes = args.table.size(1) * byte_size(args.table.dtype());
  const auto* table = static_cast<const std::byte*>(args.table.raw_data());
  auto* out = static_cast<std::byte*>(args.out.raw_data());
  const std::int32_t* ids = args.ids.data<std::int32_t>();
  parallel_ranges(n, args.out.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::memcpy(out + i * row_bytes, table + ids[i] * row_bytes, static_cast<std::size_t>(row_bytes));
  });
}

// Stable counting sort by id: each table row is summed by one thread in order.
struct PositionsById {
  Tensor storage;
  const std::int32_t* ids;
  const std::int32_t* order;  // ascending within an id

  PositionsById(const Tensor& id_tensor, std::int64_t rows) : ids(id_tensor.data<std::int32_t>()) {
    const std::int64_t n = id_tensor.size(0);
    storage = Tensor::empty({rows + n}, DType::i32);
    auto* start = storage.data<std::int32_t>();
    auto* sorted = start + rows;
    std::fill(start, start + rows, 0);
    for (std::int64_t i = 0; i < n; ++i) ++start[ids[i]];
    std::int32_t total = 0;
    for (std::int64_t row = 0; row < rows; ++row) total += std::exchange(start[row], total);
    for (std::int64_t i = 0; i < n; ++i) sorted[start[ids[i]]++] = static_cast<std::int32_t>(i);
    order = sorted;
  }
};

template <class T, class G>
void scatter_add(const EmbeddingBackwardArgs& args) {
  const std::int64_t n = args.dout.size(0), width = args.dout.size(1);
  const T* dout = args.dout.data<T>();
  G* dtable = args.dtable.data<G>();
  const MemoryScope scope(MemoryCategory::workspace);
  const PositionsById by_id(args.ids, args.dtable.size(0));
  const auto id_at = [&](std::int64_t i) { return by_id.ids[by_id.order[i]]; };

  parallel_ranges(n, n * width, [&](std::int64_t begin, std::int64_t end) {
    // A run of equal ids belongs to the range of its start.
    while (begin > 0 && begin < end && id_at(begin) == id_at(begin - 1)) ++begin;
    if (begin == end) return;
    while (end < n && id_at(end) == id_at(end - 1)) ++end;
    for (std::int64_t run = begin; run < end;) {
      std::int64_t run_end = run + 1;
      while (run_end < end && id_at(run_end) == id_at(run)) ++run_end;
      G* target = dtable + id_at(run) * width;
      for_vectors(width, [&](std::int64_t column, auto count) {
        F32 sum{};
        for (std::int64_t i = run; i < run_end; ++i) sum += load(dout + by_id.order[i] * width + column, count);
        store(target + column, load(target + column, count) + sum, count);
      });
      run = run_end;
    }
  });
}

void embedding_backward_kernel(const EmbeddingBackwardArgs& args) {
  dispatch<float, bfloat16>(args.dout.dtype(), "embedding_backward", [&]<class T>() {
    dispatch<float, bfloat16>(args.dtable.dtype(), "embedding_backward", [&]<class G>() { scatter_add<T, G>(args); });
  });
}

QUENCH_CPU_KERNEL(embedding_slot, embedding_kernel);
QUENCH_CPU_KERNEL(embedding_backward_slot, embedding_backward_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
