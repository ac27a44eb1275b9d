#include "core/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/device/determinism.h"
#include "core/device/planned_device.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<AttentionArgs> attention_slot("attention");
constinit KernelSlot<AttentionBackwardArgs> attention_backward_slot("attention_backward");

namespace {

constexpr std::int64_t kInvariantKeys = 64;

void check_operands(std::string_view op, const Tensor& q, const Tensor& k, const Tensor& v, float scale,
                    float soft_cap) {
  check_float_tensor(op, "q", q, 3);
  check_tensor(op, "k", k, {-1, -1, q.size(2)}, q.dtype());
  check_tensor(op, "v", v, k.shape(), q.dtype());
  check_contiguous_rows(op, "q", q);
  check_contiguous_rows(op, "k", k);
  check_contiguous_rows(op, "v", v);
  QUENCH_CHECK(scale > 0 && std::isfinite(scale), "{}: scale is {}, must be positive", op, scale);
  QUENCH_CHECK(soft_cap >= 0 && std::isfinite(soft_cap), "{}: soft_cap is {}", op, soft_cap);
  QUENCH_CHECK(k.size(1) > 0 && q.size(1) % k.size(1) == 0, "{}: {} query heads do not divide into {} kv heads", op,
               q.size(1), k.size(1));
}

void check_sequences(std::string_view op, std::span<const SequenceRange> sequences, std::int64_t queries,
                     std::int64_t keys, bool keys_disjoint) {
  std::int64_t end = 0, key_end = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const auto& [q_begin, q_length, k_begin, k_length] = sequences[i];
    QUENCH_CHECK(q_length >= 0 && k_length >= 0 && q_begin >= 0 && k_begin >= 0 && q_begin + q_length <= queries &&
                     k_begin + k_length <= keys,
                 "{}: sequence {} (queries {}+{}, keys {}+{}) reaches past {} queries or {} keys", op, i, q_begin,
                 q_length, k_begin, k_length, queries, keys);
    QUENCH_CHECK(q_begin >= end, "{}: sequence {} starts at query {}, before the end {} of the one before it", op, i,
                 q_begin, end);
    QUENCH_CHECK(!keys_disjoint || k_begin >= key_end,
                 "{}: sequence {} starts at key {}, before the end {} of the one before it", op, i, k_begin, key_end);
    end = q_begin + q_length;
    key_end = k_begin + k_length;
  }
}

void check_window(std::string_view op, bool causal, std::int64_t window) {
  QUENCH_CHECK(window >= 0 && (window == 0 || causal), "{}: a window of {} keys{}", op, window,
               causal ? "" : " without a causal mask");
}

void check_sinks(std::string_view op, std::string_view name, const Tensor& sinks, std::int64_t heads) {
  if (!sinks.defined()) return;
  check_tensor(op, name, sinks, {heads}, DType::f32);
  check_contiguous(op, name, sinks);
}

// 0 if no query reaches beyond the window.
std::int64_t effective_window(std::int64_t window, std::span<const SequenceRange> sequences) {
  const bool reached = std::any_of(sequences.begin(), sequences.end(),
                                   [&](const SequenceRange& s) { return s.q_length > 0 && s.k_length > window; });
  return reached ? window : 0;
}

// Sequences trimmed to the keys within some query's window; in batch-invariant mode to whole blocks, at whose begins
// the kernels of that mode begin.
std::vector<SequenceRange> within_window(std::span<const SequenceRange> sequences, std::int64_t window) {
  std::vector<SequenceRange> trimmed(sequences.begin(), sequences.end());
  for (SequenceRange& s : trimmed) {
    std::int64_t unseen = first_visible_key(s, window, 0);
    if (batch_invariant()) unseen -= unseen % kInvariantKeys;
    s.k_begin += unseen;
    s.k_length -= unseen;
  }
  return trimmed;
}

// CPU: last_key is readable, so it replaces k_length.
struct KnownLength {
  SequenceRange sequence;
  AttentionArgs args;

  explicit KnownLength(const AttentionArgs& bound) : sequence(bound.sequences.front()), args(bound) {
    sequence.k_length =
        std::clamp<std::int64_t>(*bound.last_key.data<std::int32_t>() + std::int64_t{1}, 0, sequence.k_length);
    args.sequences = std::span(&sequence, 1);
    args.last_key = Tensor();
  }
};

// Workspace of backward kernels in bf16 on a GPU (cuDNN): dq in f32, and where query heads share key heads dk and dv of
// every query head.
Tensor planned_workspace(const AttentionBackwardArgs& args) {
  if (PlannedDevice::current() != DeviceType::cuda || args.q.dtype() != DType::bf16 || args.soft_cap != 0.0f) return {};
  const MemoryScope scope(MemoryCategory::workspace);
  const std::int64_t heads = args.q.size(1), shared = heads == args.k.size(1) ? 0 : 2;
  return Tensor::empty({args.q.numel() * 4 + shared * args.k.size(0) * heads * args.q.size(2) * 2}, DType::u8,
                       args.q.device());
}

}  // namespace

void attention(const AttentionArgs& args) {
  constexpr std::string_view op = "attention";
  check_operands(op, args.q, args.k, args.v, args.scale, args.soft_cap);
  check_tensor(op, "out", args.out, args.q.shape(), args.q.dtype());
  check_contiguous(op, "out", args.out);
  if (args.lse.defined()) {
    check_tensor(op, "lse", args.lse, {args.q.size(1), args.q.size(0)}, DType::f32);
    check_contiguous(op, "lse", args.lse);
  }
  check_window(op, args.causal, args.window);
  check_sequences(op, args.sequences, args.q.size(0), args.k.size(0), false);
  check_sinks(op, "sinks", args.sinks, args.q.size(1));
  check_same_device(op, {&args.q, &args.k, &args.v, &args.out, &args.lse, &args.sinks, &args.last_key});
  if (args.last_key.defined()) {
    check_tensor(op, "last_key", args.last_key, {1}, DType::i32);
    QUENCH_CHECK(args.sequences.size() == 1 && !args.lse.defined(),
                 "attention: last_key goes with one sequence and no lse, not with {} sequences", args.sequences.size());
  }
  if (args.out.numel() == 0) return;
  if (args.last_key.defined() && args.q.device().is_cpu()) return attention(KnownLength(args).args);
  AttentionArgs call = args;
  call.window = effective_window(args.window, args.sequences);
  std::vector<SequenceRange> trimmed;
  // With lse, the backward pass uses the same sequences: not trimmed.
  if (call.window > 0 && !args.last_key.defined() && !args.lse.defined())
    call.sequences = trimmed = within_window(args.sequences, call.window);
  attention_slot(args.q.device().type, call);
}

void attention_backward(const AttentionBackwardArgs& args) {
  constexpr std::string_view op = "attention_backward";
  check_operands(op, args.q, args.k, args.v, args.scale, args.soft_cap);
  check_tensor(op, "dout", args.dout, args.q.shape(), args.q.dtype());
  check_tensor(op, "out", args.out, args.q.shape(), args.q.dtype());
  check_tensor(op, "lse", args.lse, {args.q.size(1), args.q.size(0)}, DType::f32);
  check_contiguous(op, "dout", args.dout);
  check_contiguous(op, "out", args.out);
  check_contiguous(op, "lse", args.lse);
  check_tensor(op, "dq", args.dq, args.q.shape(), args.q.dtype());
  check_tensor(op, "dk", args.dk, args.k.shape(), args.k.dtype());
  check_tensor(op, "dv", args.dv, args.v.shape(), args.v.dtype());
  check_contiguous_rows(op, "dq", args.dq);
  check_contiguous_rows(op, "dk", args.dk);
  check_contiguous_rows(op, "dv", args.dv);
  check_window(op, args.causal, args.window);
  check_sequences(op, args.sequences, args.q.size(0), args.k.size(0), true);
  check_sinks(op, "sinks", args.sinks, args.q.size(1));
  check_sinks(op, "dsinks", args.dsinks, args.q.size(1));
  QUENCH_CHECK(args.sinks.defined() || !args.dsinks.defined(), "{}: dsinks without sinks", op);
  check_same_device(op, {&args.q, &args.k, &args.v, &args.out, &args.lse, &args.dout, &args.dq, &args.dk, &args.dv,
                         &args.sinks, &args.dsinks});
  if (args.q.numel() == 0 && args.k.numel() == 0) return;
  AttentionBackwardArgs call = args;
  call.window = effective_window(args.window, args.sequences);
  if (args.q.device().is_meta()) (void)planned_workspace(call);
  attention_backward_slot(args.q.device().type, call);
}

}  // namespace quench
