#pragma once
// Attention between the projections of a layer: softmax attention of a training pass, or decoding with a KV cache.

#include "autograd/functions.h"
#include "nn/modules/forward_context.h"

namespace quench::nn {

struct AttendOptions {
  autograd::QkvLayout layout;
  float scale = 1.0f;
  std::int64_t window = 0;  // 0: none
  std::int64_t chunk = 0;   // chunk size of chunked attention; 0: none
  std::int64_t layer = 0;
  float soft_cap = 0.0f;  // AttentionSpec::soft_cap
};

// qkv [N, layout.width()] -> [N, heads * head_dim]. With a KV cache, keys and values are appended and attention reads
// the cache; no backward pass. Queries and keys are already rotated, or, with a cache, rotated by `rotation`
// (half-split pairs) in the kernel. `sinks`, if defined: [heads].
[[nodiscard]] autograd::Variable attend(const autograd::Variable& qkv, const AttendOptions& options,
                                        const ForwardContext& context, const RopeTable& rotation = {},
                                        const autograd::Weight& sinks = {});

}  // namespace quench::nn
