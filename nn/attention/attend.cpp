#include "nn/attention/attend.h"

#include <algorithm>

namespace quench::nn {

using autograd::Variable;

namespace {

Variable attend_cached(const Variable& qkv, const AttendOptions& options, const ForwardContext& context) {
  QUENCH_CHECK(!qkv.requires_grad(), "attention: a key-value cache has no backward pass");
  const autograd::QkvLayout& layout = options.layout;
  const Tensor in = qkv.value();
  const std::int64_t tokens = in.size(0), width = 2 * layout.kv_heads * layout.head_dim;
  std::int64_t keys = 0;
  for (const SequenceRange& sequence : context.sequences) keys = std::max(keys, sequence.k_begin + sequence.k_length);
  const KvCache& cache = *context.cache;
  cache.store(options.layer, in.narrow(1, in.size(1) - width, width), context.positions);
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor out = Tensor::empty({tokens, layout.heads * layout.head_dim}, in.dtype(), in.device());
  quench::attention({.q = autograd::query_view(in, layout),
                     .k = cache.keys(options.layer).narrow(0, 0, keys),
                     .v = cache.values(options.layer).narrow(0, 0, keys),
                     .out = out.view({tokens, layout.heads, layout.head_dim}),
                     .sequences = context.sequences,
                     .window = options.window,
                     .scale = options.scale,
                     .last_key = context.length_on_device ? context.positions : Tensor()});
  return Variable(out);
}

}  // namespace

Variable attend(const Variable& qkv, const AttendOptions& options, const ForwardContext& context) {
  if (context.cache != nullptr) return attend_cached(qkv, options, context);
  return autograd::attention(qkv, options.layout, context.sequences, options.scale, options.window);
}

}  // namespace quench::nn
