#include "core/ops/kv_cache/paged_attention.h"

#include <bit>
#include <cmath>

#include "core/device/determinism.h"
#include "core/ops/kv_cache/cache_codes.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<PagedAttentionArgs> paged_attention_slot("paged_attention");

namespace {

void check(const PagedAttentionArgs& args) {
  constexpr std::string_view op = "paged_attention";
  check_float_tensor(op, "qkv", args.qkv, 2);
  check_contiguous(op, "qkv", args.qkv);
  QUENCH_CHECK(args.heads > 0 && args.kv_heads > 0 && args.heads % args.kv_heads == 0 &&
                   args.qkv.size(1) % (args.heads + 2 * args.kv_heads) == 0,
               "{}: qkv is {}, with {} and {} heads", op, args.qkv.describe(), args.heads, args.kv_heads);
  const std::int64_t tokens = args.qkv.size(0), dim = args.qkv.size(1) / (args.heads + 2 * args.kv_heads);
  const bool coded = args.scales.defined();
  check_tensor(op, "cache", args.cache, {-1, 2 * args.kv_heads * dim},
               coded && args.cache.defined() ? args.cache.dtype() : args.qkv.dtype());
  check_contiguous(op, "cache", args.cache);
  if (coded) check_cache_codes(op, args.cache, args.scales);
  QUENCH_CHECK(coded || !args.hadamard, "{}: the Hadamard transform goes with codes", op);
  QUENCH_CHECK(!coded || args.scales.size(-1) == 2 * args.kv_heads, "{}: {} scales of {} KV heads", op,
               args.scales.size(-1), args.kv_heads);
  QUENCH_CHECK(args.page >= 16 && std::has_single_bit(static_cast<std::uint64_t>(args.page)),
               "{}: pages of {} tokens, expected a power of two from 16", op, args.page);
  check_tensor(op, "positions", args.positions, {tokens}, DType::i32);
  check_contiguous(op, "positions", args.positions);
  check_tensor(op, "pages", args.pages, {tokens, -1}, DType::i32);
  check_contiguous_rows(op, "pages", args.pages);
  check_tensor(op, "out", args.out, {tokens, args.heads * dim}, args.qkv.dtype());
  check_contiguous(op, "out", args.out);
  if (args.cos.defined()) {
    QUENCH_CHECK(dim % 2 == 0, "{}: RoPE of heads of {} elements", op, dim);
    check_tensor(op, "cos", args.cos, {-1, dim / 2}, DType::f32);
    check_tensor(op, "sin", args.sin, args.cos.shape(), DType::f32);
  }
  if (args.sinks.defined()) {
    check_tensor(op, "sinks", args.sinks, {args.heads}, DType::f32);
    check_contiguous(op, "sinks", args.sinks);
  }
  QUENCH_CHECK(args.window >= 0 && args.chunk >= 0 && (args.window == 0 || args.chunk == 0),
               "{}: a window of {} and chunks of {} tokens", op, args.window, args.chunk);
  QUENCH_CHECK(args.scale > 0 && std::isfinite(args.scale) && args.soft_cap >= 0 && std::isfinite(args.soft_cap),
               "{}: scale {}, soft_cap {}", op, args.scale, args.soft_cap);
  check_same_device(op, {&args.qkv, &args.cos, &args.sin, &args.positions, &args.pages, &args.cache, &args.scales,
                         &args.out, &args.sinks});
}

}  // namespace

bool paged_attention_takes(Device device, DType dtype, std::int64_t dim, bool coded) {
  // Kernels with the order of attention(), for codes with an order of their own.
  if (batch_invariant() && !coded && (device.is_cpu() || dtype != DType::bf16 || dim > 128)) return false;
  if (device.is_cpu() || device.is_meta()) return true;
  // 16-byte vectors within half heads; a CTA holds 256 elements of a head.
  return dim <= 256 && dim % 16 == 0 && (dtype == DType::bf16 || (dtype == DType::f32 && !coded)) &&
         paged_attention_slot.filled(device.type);
}

void paged_attention(const PagedAttentionArgs& args) {
  check(args);
  if (args.qkv.size(0) == 0) return;
  const Device device = args.qkv.device();
  const std::int64_t dim = args.out.size(1) / args.heads;
  QUENCH_CHECK_AS(ErrorCode::unsupported, paged_attention_takes(device, args.qkv.dtype(), dim, args.scales.defined()),
                  "paged_attention: no kernel for {} heads of {} elements, {}", args.heads, dim, args.qkv.describe());
  paged_attention_slot(device.type, args);
}

}  // namespace quench
