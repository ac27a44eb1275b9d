#include "core/ops/kv_cache/paged_attention.h"

#include <vector>

#include "core/cpu/attention_one_query.h"
#include "core/cpu/kv_cache/code_rows.h"
#include "core/ops/elementwise.h"
#include "core/ops/kv_cache/hadamard.h"
#include "core/ops/rope.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Rows of a sequence's keys or values in pages. A vector of rows is within a page.
template <class Rows>
class PagedRows {
 public:
  using Stored = typename Rows::Stored;
  PagedRows(const Rows& rows, const std::int32_t* pages, std::int64_t page) : rows_(rows), pages_(pages), page_(page) {}
  const Stored* row(std::int64_t i) const { return rows_.row(cache_row(i)); }
  [[nodiscard]] std::int64_t stride() const { return rows_.stride(); }
  static QUENCH_INLINE F32 load(const Stored* row, std::int64_t d, std::int64_t dim) { return Rows::load(row, d, dim); }
  void apply_scales(float* x, std::int64_t first, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; i += kLanes)
      rows_.apply_scales(x + i, cache_row(first + i), std::min<std::int64_t>(kLanes, count - i));
  }

 private:
  [[nodiscard]] std::int64_t cache_row(std::int64_t i) const { return pages_[i / page_] * page_ + i % page_; }

  Rows rows_;
  const std::int32_t* pages_;
  std::int64_t page_;
};

Tensor heads_of(const Tensor& matrix, std::int64_t begin, std::int64_t heads, std::int64_t dim) {
  return matrix.strided({matrix.size(0), heads, dim}, {matrix.size(1), dim, 1}, begin);
}

// i32 [B]: cache rows of the new tokens; -1 without one.
Tensor new_rows(const PagedAttentionArgs& args) {
  const Tensor rows = Tensor::empty(args.positions.shape(), DType::i32);
  const auto* position = args.positions.data<std::int32_t>();
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    const std::int32_t* pages = args.pages.data<std::int32_t>() + i * args.pages.stride(0);
    const std::int64_t at = position[i];
    QUENCH_CHECK(at < args.pages.size(1) * args.page, "paged_attention: position {} of sequence {}, of {} pages", at, i,
                 args.pages.size(1));
    rows.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(at < 0 ? -1 : pages[at / args.page] * args.page + at % args.page);
  }
  return rows;
}

void rotate(const PagedAttentionArgs& args, std::int64_t dim) {
  const auto* position = args.positions.data<std::int32_t>();
  const std::int64_t rows = args.positions.size(0);
  for (std::int64_t begin = 0, end; begin < rows; begin = end + 1) {
    for (end = begin; end < rows && position[end] >= 0;) ++end;
    if (end > begin)
      rope({.x = heads_of(args.qkv.narrow(0, begin, end - begin), 0, args.heads + args.kv_heads, dim),
            .cos = args.cos,
            .sin = args.sin,
            .positions = args.positions.narrow(0, begin, end - begin)});
  }
}

std::int64_t first_key(const PagedAttentionArgs& args, std::int64_t position) {
  if (args.chunk > 0) return position / args.chunk * args.chunk;
  return args.window > 0 ? std::max<std::int64_t>(0, position + 1 - args.window) : 0;
}

template <class T, class MakeRows>
void attend(const PagedAttentionArgs& args, std::int64_t dim, const MakeRows& make_rows) {
  using Rows = PagedRows<std::invoke_result_t<MakeRows, std::int64_t, bool>>;
  using Query = OneQuery<T, Rows>;
  const std::int64_t sequences = args.positions.size(0), group = args.heads / args.kv_heads;
  const auto* positions = args.positions.data<std::int32_t>();
  const AttentionArgs call{.q = heads_of(args.qkv, 0, args.heads, dim),
                           .k = heads_of(args.cache, 0, args.kv_heads, dim),
                           .v = heads_of(args.cache, args.kv_heads * dim, args.kv_heads, dim),
                           .out = args.out.view({sequences, args.heads, dim}),
                           .lse = {},
                           .sequences = {},
                           .scale = args.scale,
                           .soft_cap = args.soft_cap,
                           .sinks = args.sinks};
  std::int64_t work = 0;
  for (std::int64_t i = 0; i < sequences; ++i) work += (positions[i] + 1) * args.heads * dim;
  const std::int64_t scratch_size = round_up(Query::scratch_size(dim), 16);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor scratch = Tensor::empty({std::int64_t{omp_get_max_threads()}, scratch_size}, DType::f32);
  parallel_items(sequences * args.heads, work, [&](std::int64_t item, int thread) {
    const std::int64_t i = item / args.heads, head = item % args.heads, position = positions[i];
    T* out = args.out.data<T>() + item * dim;
    if (position < 0) {
      std::fill_n(out, dim, T(0.0f));
      return;
    }
    const std::int32_t* pages = args.pages.data<std::int32_t>() + i * args.pages.stride(0);
    AttentionArgs own = call;
    own.window = first_key(args, position) == 0 ? 0 : position + 1 - first_key(args, position);
    const SequenceRange sequence{i, 1, 0, position + 1};
    const Rows k(make_rows(head / group, false), pages, args.page), v(make_rows(head / group, true), pages, args.page);
    Query(own, k, v, sequence, head, scratch.data<float>() + thread * scratch_size).run();
  });
}

template <class T>
void attend_as(const PagedAttentionArgs& args, std::int64_t dim) {
  const auto first = [&](std::int64_t head, bool values) { return head + (values ? args.kv_heads : 0); };
  if (!args.scales.defined()) {
    const Tensor heads = heads_of(args.cache, 0, 2 * args.kv_heads, dim);
    return attend<T>(args, dim,
                     [&](std::int64_t head, bool values) { return ValueRows<T>(heads, first(head, values)); });
  }
  dispatch_cache_codes(args.cache.dtype(), [&]<class, class Value>() {
    attend<T>(args, dim, [&](std::int64_t head, bool values) {
      return CodeRows<Value>(args.cache, args.scales, first(head, values));
    });
  });
}

void paged_attention_kernel(const PagedAttentionArgs& args) {
  const std::int64_t dim = args.out.size(1) / args.heads, width = 2 * args.kv_heads * dim;
  if (args.cos.defined()) rotate(args, dim);
  if (args.hadamard) hadamard({heads_of(args.qkv, 0, args.heads + args.kv_heads, dim)});
  const Tensor added = args.qkv.narrow(1, args.qkv.size(1) - width, width), rows = new_rows(args);
  if (args.scales.defined())
    append_codes({.values = added, .positions = rows, .cache = args.cache, .scales = args.scales});
  else
    copy_rows({added, args.cache, rows});
  args.qkv.dtype() == DType::f32 ? attend_as<float>(args, dim) : attend_as<bfloat16>(args, dim);
}

QUENCH_CPU_KERNEL(paged_attention_slot, paged_attention_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
