#pragma once
// Attention over fused queries, keys and values, in training and over the cache of a generation: what all attention
// parts share.

#include "autograd/functions.h"
#include "nn/forward_context.h"

namespace quench::nn {

// How one layer attends.
struct AttendOptions {
  autograd::QkvLayout layout;
  float scale = 1.0f;
  std::int64_t window = 0;  // 0: none
  std::int64_t chunk = 0;   // tokens of a sequence that attend among themselves; 0: all
  std::int64_t layer = 0;   // of the cache
};

// qkv [N, layout.width()] -> [N, heads * head_dim]. With a cache in the context, keys and values go there and attention
// reads from there; that has no backward pass. Queries and keys are rotated before, or, with a cache, on the way by
// `rotation` (halves of a head).
[[nodiscard]] autograd::Variable attend(const autograd::Variable& qkv, const AttendOptions& options,
                                        const ForwardContext& context, const RopeTable& rotation = {});

}  // namespace quench::nn
