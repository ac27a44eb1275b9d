#include "nn/attention/attend.h"

#include <algorithm>

#include "core/ops/kv_cache/cached_attention.h"
#include "nn/attention/kv_cache.h"

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
                    .length_on_device = context.length_on_device});
  return Variable(out);
}

}  // namespace

Variable attend(const Variable& qkv, const AttendOptions& options, const ForwardContext& context,
                const RopeTable& rotation, const autograd::Weight& sinks) {
  if (context.cache != nullptr) return attend_cached(qkv, options, context, rotation, autograd::as_f32(sinks));
  QUENCH_CHECK(!rotation.cos.defined(), "attention: without a cache, queries and keys are rotated before");
  return autograd::attention(qkv, options.layout, visible_ranges(options, context), options.scale, options.window,
                             options.soft_cap, context.keys, sinks);
}

}  // namespace quench::nn
