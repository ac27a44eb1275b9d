// Tiles of C are computed by one thread each. Their sizes follow from the shape alone, the order of an element's sums
// from K: blocks of kDepth products are summed apart, in f32.

#include "core/cpu/gemm_tiled.h"

#include <algorithm>
#include <memory>

#include "core/cpu/gemv.h"
#include "core/cpu/micro_gemm.h"
#include "core/cpu/parallel.h"
#include "core/cpu/transpose.h"
#include "core/device/determinism.h"
#include "core/ops/elementwise.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

constexpr std::int64_t kStrip = kMicroVectors * kLanes;  // columns of a packed strip of B
constexpr std::int64_t kDepth = 256, kMostRows = 40 * kMicroRows, kMostColumns = 256;
static_assert(kMostColumns % kStrip == 0);

std::int64_t pieces(std::int64_t length, std::int64_t piece) {
  return (length + piece - 1) / piece;
}

// Smaller tiles where there are few: about one for 4M products, at most 64.
struct Tiling {
  std::int64_t rows = kMostRows, columns = kMostColumns;

  Tiling(std::int64_t m, std::int64_t n, std::int64_t k) {
    constexpr std::int64_t kTileProducts = 1 << 22, kMostWanted = 64;
    const std::int64_t wanted = std::min(m * n * k / kTileProducts, kMostWanted);
    constexpr std::int64_t kLeastRows = 8 * kMicroRows, kLeastColumns = 4 * kStrip;
    while (pieces(m, rows) * pieces(n, columns) < wanted && (rows > kLeastRows || columns > kLeastColumns)) {
      if (columns <= kLeastColumns || (rows > kLeastRows && rows >= columns))
        rows = std::max(kLeastRows, pieces(rows / 2, kMicroRows) * kMicroRows);
      else
        columns /= 2;
    }
  }
};

// Buffers of a thread, which keeps them. As oneDNN's, they do not come from the allocator that `quench estimate`
// predicts.
struct Workspace {
  static constexpr std::int64_t kElements = kDepth * kMostColumns + kMostRows * (kDepth + kMostColumns);
  float* b;     // strips [depth, kStrip]
  float* a;     // widened [rows, depth], or [depth, rows] with transpose_a
  float* sums;  // [rows, kMostColumns]

  [[nodiscard]] static Workspace of_thread() {
    thread_local const auto space = std::make_unique_for_overwrite<float[]>(kElements);
    float* const b = space.get();
    return {b, b + kDepth * kMostColumns, b + kDepth * kMostColumns + kMostRows * kDepth};
  }
};

template <class T>
QUENCH_INLINE F32 load_up_to(const T* p, std::int64_t count) {
  return count >= kLanes ? load(p, FullVector{}) : count > 0 ? load(p, count) : F32{};
}

// Zero-filled to whole strips.
template <class T>
void pack_strips(const T* b, std::int64_t stride, bool transposed, std::int64_t depth, std::int64_t columns,
                 float* to) {
  for (std::int64_t strip = 0; strip < columns; strip += kStrip, to += depth * kStrip)
    for (std::int64_t v = 0; v < kStrip; v += kLanes) {
      const std::int64_t column = strip + v, width = columns - column;
      if (!transposed) {
        for (std::int64_t k = 0; k < depth; ++k)
          store(to + k * kStrip + v, load_up_to(b + k * stride + column, width), FullVector{});
        continue;
      }
      for (std::int64_t k = 0; k < depth; k += kLanes) {
        F32 block[kLanes];
        for (int i = 0; i < kLanes; ++i)
          block[i] = i < width ? load_up_to(b + (column + i) * stride + k, depth - k) : F32{};
        transpose_lanes(block);
        for (std::int64_t j = 0; j < std::min<std::int64_t>(kLanes, depth - k); ++j)
          store(to + (k + j) * kStrip + v, block[j], FullVector{});
      }
    }
}

template <class T>
void widen(const T* from, std::int64_t stride, std::int64_t lines, std::int64_t length, float* to) {
  for (std::int64_t i = 0; i < lines; ++i)
    for_vectors(length, [&](std::int64_t j, auto count) {
      store(to + i * length + j, load(from + i * stride + j, count), count);
    });
}

struct Tile {
  std::int64_t row, rows, column, columns;
};

template <class T>
void add_products(const GemmArgs& args, const Tile& tile, std::int64_t begin, std::int64_t depth,
                  const Workspace& work) {
  const std::int64_t a_stride = args.a.stride(0), b_stride = args.b.stride(0);
  const T* b = args.b.data<T>() + (args.transpose_b ? tile.column * b_stride + begin : begin * b_stride + tile.column);
  pack_strips(b, b_stride, args.transpose_b, depth, tile.columns, work.b);

  const T* a = args.a.data<T>() + (args.transpose_a ? begin * a_stride + tile.row : tile.row * a_stride + begin);
  const float* wide;
  std::int64_t stride = a_stride;
  if constexpr (std::is_same_v<T, float>) {
    wide = a;
  } else {
    stride = args.transpose_a ? tile.rows : depth;
    widen(a, a_stride, args.transpose_a ? depth : tile.rows, stride, work.a);
    wide = work.a;
  }
  const std::int64_t a_row = args.transpose_a ? 1 : stride, a_depth = args.transpose_a ? stride : 1;
  for (std::int64_t strip = 0; strip < tile.columns; strip += kStrip)
    for (std::int64_t row = 0; row < tile.rows; row += kMicroRows) {
      alignas(64) float products[kMicroRows * kStrip];
      const std::int64_t rows = std::min<std::int64_t>(kMicroRows, tile.rows - row);
      const std::int64_t vectors = pieces(std::min(kStrip, tile.columns - strip), kLanes);
      micro_gemm<false>(
          MicroGemm<float>{wide + row * a_row, a_row, a_depth, work.b + strip * depth, kStrip, products, kStrip, depth},
          rows, vectors);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t v = 0; v < vectors * kLanes; v += kLanes) {
          float* sum = work.sums + (row + r) * kMostColumns + strip + v;
          const F32 product = load(products + r * kStrip + v, FullVector{});
          store(sum, begin == 0 ? product : load(sum, FullVector{}) + product, FullVector{});
        }
    }
}

template <class T, class C>
void write_tile(const GemmArgs& args, const Tile& tile, bool any, const float* sums) {
  const T* bias = args.bias.defined() ? args.bias.data<T>() + tile.column : nullptr;
  const Tensor& addend = args.addend.defined() ? args.addend : args.c;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    C* c = args.c.data<C>() + (tile.row + r) * args.c.stride(0) + tile.column;
    const C* old = addend.data<C>() + (tile.row + r) * addend.stride(0) + tile.column;
    for_vectors(tile.columns, [&](std::int64_t i, auto count) {
      F32 value = any ? load(sums + r * kMostColumns + i, FullVector{}) * args.alpha : F32{};
      if (args.beta != 0.0f) value += load(old + i, count) * args.beta;
      if (bias != nullptr) value += load(bias + i, count);
      store(c + i, value, count);
    });
  }
}

template <class T, class C>
void multiply(const GemmArgs& args) {
  const std::int64_t m = args.c.size(0), n = args.c.size(1), k = args.a.size(args.transpose_a ? 0 : 1);
  const Tiling tiling(m, n, k);
  const std::int64_t across = pieces(n, tiling.columns), count = pieces(m, tiling.rows) * across;
  [[maybe_unused]] const std::int64_t threads =
      omp_in_parallel() != 0 ? 1 : std::min<std::int64_t>(omp_get_max_threads(), count);
#pragma omp parallel for schedule(dynamic, 1) num_threads(static_cast <int>(threads)) if (threads > 1)
  for (std::int64_t i = 0; i < count; ++i) {
    const Workspace work = Workspace::of_thread();
    const std::int64_t row = i / across * tiling.rows, column = i % across * tiling.columns;
    const Tile tile{row, std::min(tiling.rows, m - row), column, std::min(tiling.columns, n - column)};
    for (std::int64_t begin = 0; begin < k; begin += kDepth)
      add_products<T>(args, tile, begin, std::min(kDepth, k - begin), work);
    write_tile<T, C>(args, tile, k > 0, work.sums);
  }
}

void tiled_gemm(const GemmArgs& args) {
  dispatch<float, bfloat16>(args.a.dtype(), "gemm", [&]<class T>() {
    dispatch<float, bfloat16>(args.c.dtype(), "gemm", [&]<class C>() { multiply<T, C>(args); });
  });
}

QUENCH_CPU_KERNEL(tiled_gemm_slot, tiled_gemm);

#if !defined(__x86_64__)
void gemm_kernel(const GemmArgs& args) {
  if (args.transpose_b && !args.transpose_a && args.c.size(0) <= kGemvRows && args.a.size(1) > 0 &&
      !batch_invariant()) {
    GemmArgs in_place = args;
    in_place.addend = Tensor();
    if (args.addend.defined() && args.beta != 0.0f) copy_rows({args.addend, args.c});
    return gemv_slot(DeviceType::cpu, in_place);
  }
  tiled_gemm(args);
}

QUENCH_CPU_KERNEL(gemm_slot, gemm_kernel);
#endif

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
