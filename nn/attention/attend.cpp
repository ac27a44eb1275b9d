#include "nn/attention/attend.h"

#include <algorithm>

#include "core/ops/elementwise.h"
#include "core/ops/embedding.h"
#include "core/ops/kv_cache/cache_codes.h"
#include "core/ops/kv_cache/cached_attention.h"
#include "core/ops/kv_cache/hadamard.h"
#include "core/ops/kv_cache/paged_attention.h"
#include "core/ops/rope.h"
#include "nn/attention/kv_cache.h"
#include "nn/attention/paged_keys.h"

namespace quench::nn {

using autograd::Variable;

namespace {

// Chunks as separate sequences.
std::vector<SequenceRange> chunks_of(const std::vector<SequenceRange>& sequences, std::int64_t chunk) {
  std::vector<SequenceRange> parts;
  for (const SequenceRange& s : sequences) {
    const std::int64_t first = s.k_length - s.q_length;
    for (std::int64_t position = first; position < s.k_length;) {
      const std::int64_t begin = position / chunk * chunk, end = std::min(begin + chunk, s.k_length);
      parts.push_back({s.q_begin + position - first, end - position, s.k_begin + begin, end - begin});
      position = end;
    }
  }
  return parts;
}

std::vector<SequenceRange> visible_ranges(const AttendOptions& options, const ForwardContext& context) {
  return options.chunk > 0 ? chunks_of(context.sequences, options.chunk) : context.sequences;
}

Variable attend_cached(const Variable& qkv, const AttendOptions& options, const ForwardContext& context,
                       const RopeTable& rotation, const Tensor& sinks) {
  QUENCH_CHECK(!qkv.requires_grad(), "attention: a key-value cache has no backward pass");
  const autograd::QkvLayout& layout = options.layout;
  const Tensor in = qkv.value();
  std::int64_t keys = 0;
  for (const SequenceRange& sequence : context.sequences) keys = std::max(keys, sequence.k_begin + sequence.k_length);
  // k_length is an upper bound here: the query's chunk is known only if there is a single one.
  QUENCH_CHECK(!context.length_on_device || options.chunk == 0 || keys <= options.chunk,
               "attention: {} keys, of a number that the device alone knows, in chunks of {}", keys, options.chunk);
  const std::vector<SequenceRange> ranges = visible_ranges(options, context);
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor out = Tensor::empty({in.size(0), layout.heads * layout.head_dim}, in.dtype(), in.device());
  cached_attention({.qkv = in,
                    .cos = rotation.cos,
                    .sin = rotation.sin,
                    .positions = context.positions,
                    .cache = context.cache->rows(options.layer),
                    .scales = context.cache->scales(options.layer),
                    .out = out,
                    .heads = layout.heads,
                    .kv_heads = layout.kv_heads,
                    .sequences = ranges,
                    .window = options.window,
                    .scale = options.scale,
                    .soft_cap = options.soft_cap,
                    .sinks = sinks,
                    .hadamard = context.cache->transforms_keys(),
                    .length_on_device = context.length_on_device});
  return Variable(out);
}

Tensor heads_of(const Tensor& matrix, std::int64_t begin, std::int64_t heads, std::int64_t dim) {
  return matrix.strided({matrix.size(0), heads, dim}, {matrix.size(1), dim, 1}, begin);
}

// One token per sequence.
void decode_paged(const Tensor& qkv, const AttendOptions& options, const ForwardContext& context,
                  const RopeTable& rotation, const Tensor& sinks, const Tensor& out) {
  const PagedKeys& keys = *context.paged;
  paged_attention({.qkv = qkv,
                   .cos = rotation.cos,
                   .sin = rotation.sin,
                   .positions = context.positions,
                   .pages = keys.pages,
                   .page = kPageTokens,
                   .cache = keys.cache->rows(options.layer),
                   .scales = keys.cache->scales(options.layer),
                   .out = out,
                   .heads = options.layout.heads,
                   .kv_heads = options.layout.kv_heads,
                   .window = options.window,
                   .chunk = options.chunk,
                   .scale = options.scale,
                   .soft_cap = options.soft_cap,
                   .sinks = sinks,
                   .hadamard = keys.cache->transforms_keys()});
}

// Keys and values of context.sequences, [R, 2 kv_heads * D] in the dtype of qkv; undefined: those of this pass.
Tensor gathered_keys(const Tensor& added, const AttendOptions& options, const PagedKeys& keys) {
  const Tensor &cache = keys.cache->rows(options.layer), &scales = keys.cache->scales(options.layer);
  if (scales.defined())
    append_codes({.values = added, .positions = keys.token_rows, .cache = cache, .scales = scales});
  else
    copy_rows({added, cache, keys.token_rows});
  if (!keys.key_rows.defined()) return {};
  const Tensor gathered = Tensor::empty({keys.key_rows.size(0), added.size(1)}, added.dtype(), added.device());
  if (scales.defined())
    decode_codes({.cache = cache, .scales = scales, .out = gathered, .rows = keys.key_rows});
  else
    embedding({.table = cache, .ids = keys.key_rows, .out = gathered});
  return gathered;
}

Variable attend_paged(const Variable& qkv, const AttendOptions& options, const ForwardContext& context,
                      const RopeTable& rotation, const Tensor& sinks) {
  QUENCH_CHECK(!qkv.requires_grad(), "attention: a key-value cache has no backward pass");
  const autograd::QkvLayout& layout = options.layout;
  const Tensor in = qkv.value();
  const Tensor out = [&] {
    const MemoryScope scope(MemoryCategory::activations);
    return Tensor::empty({in.size(0), layout.heads * layout.head_dim}, in.dtype(), in.device());
  }();
  if (context.paged->decodes()) {
    decode_paged(in, options, context, rotation, sinks, out);
    return Variable(out);
  }
  if (rotation.cos.defined())
    rope({.x = heads_of(in, 0, layout.heads + layout.kv_heads, layout.head_dim),
          .cos = rotation.cos,
          .sin = rotation.sin,
          .positions = context.rotation_rows});
  if (context.paged->cache->transforms_keys())
    hadamard({heads_of(in, 0, layout.heads + layout.kv_heads, layout.head_dim)});
  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t width = layout.kv_heads * layout.head_dim;
  const std::int64_t first = in.size(1) - 2 * width;
  const Tensor gathered = gathered_keys(in.narrow(1, first, 2 * width), options, *context.paged);
  const auto kv = [&](std::int64_t begin) {
    return gathered.defined() ? heads_of(gathered, begin, layout.kv_heads, layout.head_dim)
                              : heads_of(in, first + begin, layout.kv_heads, layout.head_dim);
  };
  attention({.q = heads_of(in, 0, layout.heads, layout.head_dim),
             .k = kv(0),
             .v = kv(width),
             .out = out.view({in.size(0), layout.heads, layout.head_dim}),
             .lse = {},
             .sequences = visible_ranges(options, context),
             .window = options.window,
             .scale = options.scale,
             .soft_cap = options.soft_cap,
             .sinks = sinks});
  return Variable(out);
}

}  // namespace

Variable attend(const Variable& qkv, const AttendOptions& options, const ForwardContext& context,
                const RopeTable& rotation, const autograd::Weight& sinks) {
  if (context.cache != nullptr) return attend_cached(qkv, options, context, rotation, autograd::as_f32(sinks));
  if (context.paged != nullptr) return attend_paged(qkv, options, context, rotation, autograd::as_f32(sinks));
  QUENCH_CHECK(!rotation.cos.defined(), "attention: without a cache, queries and keys are rotated before");
  return autograd::attention(qkv, options.layout, visible_ranges(options, context), options.scale, options.window,
                             options.soft_cap, context.keys, sinks);
}

}  // namespace quench::nn
