#include "core/ops/kv_cache/cached_attention.h"

#include "core/ops/elementwise.h"
#include "core/ops/kv_cache/cache_codes.h"
#include "core/ops/kv_cache/coded_attention.h"
#include "core/ops/kv_cache/hadamard.h"
#include "core/ops/rope.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<CachedAttentionArgs> cached_attention_slot("cached_attention");

namespace {

Tensor heads_of(const Tensor& matrix, std::int64_t begin, std::int64_t heads, std::int64_t dim) {
  return matrix.strided({matrix.size(0), heads, dim}, {matrix.size(1), dim, 1}, begin);
}

// Requirements of the fused decode kernel: 16-byte vectors within half heads.
// Codes: of bf16 alone.
bool is_one_token(const CachedAttentionArgs& args, std::int64_t dim) {
  constexpr std::int64_t kMostDim = 256, kPieceElements = 8;
  const auto aligned = [](const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.raw_data()) % 16 == 0; };
  return args.qkv.size(0) == 1 && args.sequences.size() == 1 && args.sequences.front().q_length == 1 &&
         dim <= kMostDim && dim % (2 * kPieceElements) == 0 && aligned(args.qkv) && aligned(args.cache) &&
         (!args.cos.defined() || (aligned(args.cos) && aligned(args.sin))) &&
         (!args.scales.defined() || args.qkv.dtype() == DType::bf16);
}

}  // namespace

void cached_attention(const CachedAttentionArgs& args) {
  constexpr std::string_view op = "cached_attention";
  const auto& [qkv, cos, sin, positions, cache, scales, out, heads, kv_heads, sequences, window, scale, soft_cap, sinks,
               transforms, on_device] = args;
  check_float_tensor(op, "qkv", qkv, 2);
  check_contiguous(op, "qkv", qkv);
  QUENCH_CHECK(heads > 0 && kv_heads > 0 && qkv.size(1) % (heads + 2 * kv_heads) == 0,
               "{}: qkv is {}, with {} and {} heads", op, qkv.describe(), heads, kv_heads);
  const std::int64_t tokens = qkv.size(0), dim = qkv.size(1) / (heads + 2 * kv_heads);
  const std::int64_t width = 2 * kv_heads * dim;
  const bool coded = scales.defined();
  check_tensor(op, "cache", cache, {-1, width}, coded && cache.defined() ? cache.dtype() : qkv.dtype());
  check_contiguous(op, "cache", cache);
  if (coded) check_cache_codes(op, cache, scales);
  QUENCH_CHECK(coded || !transforms, "{}: the Hadamard transform goes with codes", op);
  QUENCH_CHECK(!coded || scales.size(-1) == 2 * kv_heads, "{}: {} scales of {} KV heads", op, scales.size(-1),
               kv_heads);
  check_tensor(op, "positions", positions, {tokens}, DType::i32);
  check_tensor(op, "out", out, {tokens, heads * dim}, qkv.dtype());
  check_contiguous(op, "out", out);
  check_same_device(op, {&qkv, &cos, &sin, &positions, &cache, &scales, &out, &sinks});
  if (sinks.defined()) {
    check_tensor(op, "sinks", sinks, {heads}, DType::f32);
    check_contiguous(op, "sinks", sinks);
  }
  if (tokens == 0) return;
  if (cos.defined()) {
    check_tensor(op, "cos", cos, {-1, dim / 2}, DType::f32);
    check_tensor(op, "sin", sin, cos.shape(), DType::f32);
  }
  if (cached_attention_slot.filled(qkv.device().type) && is_one_token(args, dim))
    return cached_attention_slot(qkv.device().type, args);
  if (cos.defined())
    rope({.x = heads_of(qkv, 0, heads + kv_heads, dim), .cos = cos, .sin = sin, .positions = positions});
  if (transforms) hadamard({heads_of(qkv, 0, heads + kv_heads, dim)});
  const Tensor added = qkv.narrow(1, qkv.size(1) - width, width);
  if (coded) {
    append_codes({.values = added, .positions = positions, .cache = cache, .scales = scales});
    return coded_attention({.q = heads_of(qkv, 0, heads, dim),
                            .cache = cache,
                            .scales = scales,
                            .out = out.view({tokens, heads, dim}),
                            .sequences = sequences,
                            .window = window,
                            .scale = scale,
                            .soft_cap = soft_cap,
                            .sinks = sinks,
                            .last_key = on_device ? positions : Tensor()});
  }
  copy_rows({added, cache, positions});
  attention({.q = heads_of(qkv, 0, heads, dim),
             .k = heads_of(cache, 0, kv_heads, dim),
             .v = heads_of(cache, kv_heads * dim, kv_heads, dim),
             .out = out.view({tokens, heads, dim}),
             .sequences = sequences,
             .window = window,
             .scale = scale,
             .soft_cap = soft_cap,
             .sinks = sinks,
             .last_key = on_device ? positions : Tensor()});
}

}  // namespace quench
