#pragma once
// Paged KV caches for the tests of their op, and the same keys as one stretch of a cache for each sequence.

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/ops/kv_cache/cached_attention.h"
#include "core/ops/kv_cache/paged_attention.h"
#include "tests/core/ops/kv_cache/cache_cases.h"
#include "tests/core/ops/rope_tables.h"

namespace quench::testing {

struct PagedProblem {
  Tensor qkv, cos, sin, positions, pages, cache, scales, sinks;
  std::int64_t page = 16, heads = 0, kv_heads = 0, window = 0, chunk = 0;
  float soft_cap = 0;
  bool hadamard = false;

  [[nodiscard]] std::int64_t sequences() const { return qkv.size(0); }
  [[nodiscard]] std::int64_t dim() const { return qkv.size(1) / (heads + 2 * kv_heads); }
  [[nodiscard]] std::int64_t position(std::int64_t i) const { return positions.data<std::int32_t>()[i]; }
  [[nodiscard]] std::int64_t cache_row(std::int64_t sequence, std::int64_t key) const {
    return pages.data<std::int32_t>()[sequence * pages.size(1) + key / page] * page + key % page;
  }
  [[nodiscard]] PagedAttentionArgs args(const Tensor& out) const {
    return {.qkv = qkv,
            .cos = cos,
            .sin = sin,
            .positions = positions,
            .pages = pages,
            .page = page,
            .cache = cache,
            .scales = scales,
            .out = out,
            .heads = heads,
            .kv_heads = kv_heads,
            .window = window,
            .chunk = chunk,
            .scale = 1.0f / std::sqrt(static_cast<float>(dim())),
            .soft_cap = soft_cap,
            .sinks = sinks,
            .hadamard = hadamard};
  }
};

struct PagedShape {
  std::vector<std::int32_t> positions;
  std::int64_t heads = 4, kv_heads = 2, dim = 64, page = 16, window = 0, chunk = 0;
  DType dtype = DType::bf16;
  std::optional<DType> codes{};
  bool shared = false;  // scales
  bool rotates = true, sinks = false;
  float soft_cap = 0;
  bool hadamard = false;
};

// Pages in random order, unused ones between.
inline PagedProblem make_paged(Generator& random, const PagedShape& shape) {
  const auto sequences = static_cast<std::int64_t>(shape.positions.size());
  const std::int64_t longest = *std::ranges::max_element(shape.positions) + 1;
  const std::int64_t width = std::max<std::int64_t>(1, (longest + shape.page - 1) / shape.page) + 1;
  const std::int64_t count = sequences * width + 3;
  PagedProblem p{.qkv = random.normal({sequences, (shape.heads + 2 * shape.kv_heads) * shape.dim}, shape.dtype),
                 .positions = Tensor::from_values<std::int32_t>({sequences}, shape.positions),
                 .pages = Tensor::empty({sequences, width}, DType::i32),
                 .cache = random.normal({count * shape.page, 2 * shape.kv_heads * shape.dim}, shape.dtype),
                 .page = shape.page,
                 .heads = shape.heads,
                 .kv_heads = shape.kv_heads,
                 .window = shape.window,
                 .chunk = shape.chunk,
                 .soft_cap = shape.soft_cap,
                 .hadamard = shape.hadamard};
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  std::copy_n(order.begin(), p.pages.numel(), p.pages.data<std::int32_t>());
  if (shape.codes) {
    const CodedCache coded(p.cache, 2 * shape.kv_heads, *shape.codes, shape.shared);
    p.cache = coded.cache;
    p.scales = coded.scales;
  }
  if (shape.rotates) {
    const Tables tables(std::max<std::int64_t>(1, longest), shape.dim / 2);
    p.cos = tables.cos;
    p.sin = tables.sin;
  }
  if (shape.sinks) p.sinks = random.normal({shape.heads}, DType::f32);
  return p;
}

// Shapes whose kernels differ: heads of a KV head, widths, elements of the cache, ways to see keys.
inline std::vector<PagedShape> paged_shapes() {
  const std::vector<std::int32_t> ragged{0, 15, 16, 299, -1, 700};
  std::vector<PagedShape> shapes{{.positions = {0}},
                                 {.positions = {511}, .page = 32},
                                 {.positions = ragged},
                                 {.positions = ragged, .rotates = false},
                                 {.positions = ragged, .heads = 6, .kv_heads = 2, .sinks = true},
                                 {.positions = ragged, .heads = 3, .kv_heads = 3, .dim = 32, .dtype = DType::f32},
                                 {.positions = ragged, .heads = 16, .kv_heads = 1, .dim = 128, .soft_cap = 5},
                                 {.positions = ragged, .heads = 4, .kv_heads = 1, .dim = 192, .page = 32},
                                 {.positions = ragged, .heads = 2, .kv_heads = 2, .dim = 256, .dtype = DType::f32},
                                 {.positions = ragged, .dim = 80, .window = 50},
                                 {.positions = ragged, .window = 1},
                                 {.positions = {1500, 3, 900}, .window = 300, .sinks = true},
                                 {.positions = {1500, 3, 900}, .chunk = 384}};
  for (const DType codes : kCacheCodes)
    for (const bool shared : {true, false})
      shapes.push_back({.positions = ragged, .dim = 128, .page = 32, .codes = codes, .shared = shared});
  for (const std::int64_t dim : {16, 64, 80, 128, 192, 256})
    shapes.push_back({.positions = ragged, .dim = dim, .codes = DType::i8, .rotates = dim != 128, .hadamard = true});
  return shapes;
}

}  // namespace quench::testing
