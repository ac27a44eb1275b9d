#include "core/ops/kv_cache/coded_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/ops/kv_cache/cache_codes.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<CodedAttentionArgs> coded_attention_slot("coded_attention");

namespace {

AttentionArgs attention_of(const CodedAttentionArgs& args, const Tensor& rows) {
  const std::int64_t dim = args.q.size(2), kv_heads = args.scales.size(-1) / 2;
  const auto heads = [&](std::int64_t first) {
    return rows.strided({rows.size(0), kv_heads, dim}, {rows.size(1), dim, 1}, first * dim);
  };
  return {.q = args.q,
          .k = heads(0),
          .v = heads(kv_heads),
          .out = args.out,
          .lse = {},
          .sequences = args.sequences,
          .window = args.window,
          .scale = args.scale,
          .soft_cap = args.soft_cap,
          .sinks = args.sinks,
          .last_key = args.last_key};
}

void check(const CodedAttentionArgs& args) {
  constexpr std::string_view op = "coded_attention";
  check_float_tensor(op, "q", args.q, 3);
  check_contiguous_rows(op, "q", args.q);
  check_cache_codes(op, args.cache, args.scales);
  const std::int64_t heads = args.q.size(1), dim = args.q.size(2), kv_heads = args.scales.size(-1) / 2;
  QUENCH_CHECK(args.cache.size(1) == 2 * kv_heads * dim && heads % kv_heads == 0,
               "{}: q is {}, and the cache has {} columns of {} KV heads", op, args.q.describe(), args.cache.size(1),
               kv_heads);
  check_tensor(op, "out", args.out, args.q.shape(), args.q.dtype());
  check_contiguous(op, "out", args.out);
  QUENCH_CHECK(args.scale > 0 && std::isfinite(args.scale), "{}: scale is {}, must be positive", op, args.scale);
  QUENCH_CHECK(args.soft_cap >= 0 && std::isfinite(args.soft_cap), "{}: soft_cap is {}", op, args.soft_cap);
  QUENCH_CHECK(args.window >= 0, "{}: a window of {} keys", op, args.window);
  if (args.sinks.defined()) {
    check_tensor(op, "sinks", args.sinks, {heads}, DType::f32);
    check_contiguous(op, "sinks", args.sinks);
  }
  if (args.last_key.defined()) {
    check_tensor(op, "last_key", args.last_key, {1}, DType::i32);
    QUENCH_CHECK(args.sequences.size() == 1, "{}: last_key goes with one sequence, not with {}", op,
                 args.sequences.size());
  }
  check_same_device(op, {&args.q, &args.cache, &args.scales, &args.out, &args.sinks, &args.last_key});
  std::int64_t end = 0;
  for (const SequenceRange& s : args.sequences) {
    QUENCH_CHECK(s.q_begin >= end && s.q_length >= 0 && s.q_begin + s.q_length <= args.q.size(0) && s.k_begin >= 0 &&
                     s.k_length >= 0 && s.k_begin + s.k_length <= args.cache.size(0),
                 "{}: a sequence of queries {}+{} and keys {}+{}, of {} queries in order and {} cached rows", op,
                 s.q_begin, s.q_length, s.k_begin, s.k_length, args.q.size(0), args.cache.size(0));
    end = s.q_begin + s.q_length;
  }
}

}  // namespace

AttentionArgs coded_operands(const CodedAttentionArgs& args) {
  return attention_of(args, args.cache);
}

void coded_attention(const CodedAttentionArgs& args) {
  check(args);
  if (args.out.numel() == 0) return;
  const DeviceType device = args.q.device().type;
  if (args.last_key.defined() && args.q.device().is_cpu()) {  // readable: replaces k_length
    SequenceRange known = args.sequences.front();
    known.k_length = std::clamp<std::int64_t>(*args.last_key.data<std::int32_t>() + std::int64_t{1}, 0, known.k_length);
    CodedAttentionArgs call = args;
    call.sequences = std::span(&known, 1);
    call.last_key = Tensor();
    return coded_attention(call);
  }
  const bool few =
      std::ranges::all_of(args.sequences, [](const SequenceRange& s) { return s.q_length <= kFewQueries; });
  if (few && (coded_attention_slot.filled(device) || device == DeviceType::meta))
    return coded_attention_slot(device, args);
  attend_decoded(args);
}

void attend_decoded(const CodedAttentionArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  std::vector<SequenceRange> sequences(args.sequences.begin(), args.sequences.end());
  std::int64_t rows = 0;
  for (SequenceRange& s : sequences) {
    // The device alone knows the window's place.
    const std::int64_t unseen = args.last_key.defined() ? 0 : first_visible_key(s, args.window, 0);
    s.k_begin += unseen;
    s.k_length = s.q_length > 0 ? s.k_length - unseen : 0;
    rows += s.k_length;
  }
  const Tensor decoded = Tensor::empty({rows, args.cache.size(1)}, args.q.dtype(), args.q.device());
  std::int64_t at = 0;
  for (SequenceRange& s : sequences) {
    const bool dynamic = args.scales.rank() == 2;
    if (s.k_length > 0)
      decode_codes({.cache = args.cache.narrow(0, s.k_begin, s.k_length),
                    .scales = dynamic ? args.scales.narrow(0, s.k_begin, s.k_length) : args.scales,
                    .out = decoded.narrow(0, at, s.k_length)});
    s.k_begin = at;
    at += s.k_length;
  }
  AttentionArgs call = attention_of(args, decoded);
  call.sequences = sequences;
  attention(call);
}

}  // namespace quench
