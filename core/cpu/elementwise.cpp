#include "core/ops/elementwise.h"

#include <cstring>

#include "core/cpu/basic/for_elements.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void cast_kernel(const CastArgs& args) {
  const std::int64_t n = args.from.numel();
  dispatch<float, bfloat16, float16>(args.from.dtype(), "cast", [&]<class From>() {
    dispatch<float, bfloat16, float16>(args.to.dtype(), "cast", [&]<class To>() {
      const From* from = args.from.data<From>();
      To* to = args.to.data<To>();
      for_elements(n, [=](std::int64_t i, auto count) { store(to + i, load(from + i, count), count); });
    });
  });
}

void add_kernel(const AddArgs& args) {
  dispatch<float, bfloat16>(args.out.dtype(), "add", [&]<class T>() {
    const T* a = args.a.data<T>();
    const T* b = args.b.data<T>();
    T* out = args.out.data<T>();
    for_elements(args.out.numel(),
                 [=](std::int64_t i, auto count) { store(out + i, load(a + i, count) + load(b + i, count), count); });
  });
}

void accumulate_kernel(const AccumulateArgs& args) {
  const F32 scale = broadcast(args.scale);
  dispatch<float, bfloat16>(args.x.dtype(), "accumulate", [&]<class X>() {
    dispatch<float, bfloat16>(args.out.dtype(), "accumulate", [&]<class T>() {
      const X* x = args.x.data<X>();
      T* out = args.out.data<T>();
      for_elements(args.out.numel(), [=](std::int64_t i, auto count) {
        store(out + i, fma(load(x + i, count), scale, load(out + i, count)), count);
      });
    });
  });
}

void scale_kernel(const ScaleArgs& args) {
  dispatch<float, bfloat16>(args.x.dtype(), "scale", [&]<class T>() {
    T* x = args.x.data<T>();
    const float factor = args.factor;
    for_elements(args.x.numel(), [=](std::int64_t i, auto count) { store(x + i, load(x + i, count) * factor, count); });
  });
}

void scale_rows_kernel(const ScaleRowsArgs& args) {
  const std::int64_t rows = args.x.size(0), width = args.x.size(1);
  const float* factors = args.factors.data<float>();
  dispatch<float, bfloat16>(args.x.dtype(), "scale_rows", [&]<class T>() {
    T* x = args.x.data<T>();
    parallel_ranges(rows, args.x.numel(), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* values = x + row * width;
        const float factor = factors[row];
        for_vectors(width, [=](std::int64_t i, auto count) {
          store(values + i, factor != 0.0f ? load(values + i, count) * factor : F32{}, count);
        });
      }
    });
  });
}

void copy_rows_kernel(const CopyRowsArgs& args) {
  const std::int64_t n = args.from.size(0), width = byte_size(args.from.dtype());
  const std::int64_t from_step = args.from.stride(0) * width, to_step = args.to.stride(0) * width;
  const auto bytes = static_cast<std::size_t>(args.from.size(1) * width);
  const auto* from = static_cast<const std::byte*>(args.from.raw_data());
  auto* to = static_cast<std::byte*>(args.to.raw_data());
  const std::int32_t* rows = args.rows.defined() ? args.rows.data<std::int32_t>() : nullptr;
  parallel_ranges(n, args.from.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = rows != nullptr ? rows[i] : i;
      if (row >= 0 && row < args.to.size(0)) std::memcpy(to + row * to_step, from + i * from_step, bytes);
    }
  });
}

template <class T, class G>
void sum_columns(const ColumnSumArgs& args) {
  const std::int64_t n = args.x.size(0), width = args.x.size(1), step = args.x.stride(0);
  const T* x = args.x.data<T>();
  const RowParts parts(n);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor partial = Tensor::empty({parts.count, width}, DType::f32);
  float* sums = partial.data<float>();
  parallel_ranges(parts.count, n * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t first = part * parts.rows, last = std::min(n, first + parts.rows);
      for_vectors(width, [&](std::int64_t i, auto count) {
        F32 sum{};
        for (std::int64_t row = first; row < last; ++row) sum += load(x + row * step + i, count);
        store(sums + part * width + i, sum, count);
      });
    }
  });
  G* out = args.out.data<G>();
  for_vectors(width, [&](std::int64_t i, auto count) {
    F32 total{};
    for (std::int64_t part = 0; part < parts.count; ++part) total += load(sums + part * width + i, count);
    if (args.accumulate) total += load(out + i, count);
    store(out + i, total, count);
  });
}

void column_sum_kernel(const ColumnSumArgs& args) {
  dispatch<float, bfloat16>(args.x.dtype(), "column_sum", [&]<class T>() {
    dispatch<float, bfloat16>(args.out.dtype(), "column_sum", [&]<class G>() { sum_columns<T, G>(args); });
  });
}

QUENCH_CPU_KERNEL(cast_slot, cast_kernel);
QUENCH_CPU_KERNEL(add_slot, add_kernel);
QUENCH_CPU_KERNEL(accumulate_slot, accumulate_kernel);
QUENCH_CPU_KERNEL(scale_slot, scale_kernel);
QUENCH_CPU_KERNEL(scale_rows_slot, scale_rows_kernel);
QUENCH_CPU_KERNEL(copy_rows_slot, copy_rows_kernel);
QUENCH_CPU_KERNEL(column_sum_slot, column_sum_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
