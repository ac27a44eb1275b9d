// Attention dispatch: cuDNN for bf16 training and prefill, decode kernels for few queries, else tiled kernels; in
// batch-invariant mode kernels of one order.

#include "core/ops/attention.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include "core/cuda/attention/attention_kernels.h"
#include "core/cuda/attention/ordered_attention.h"
#include "core/cuda/common/kernel_choice.h"
#include "core/cuda/common/launch.h"
#include "core/device/call_counter.h"
#include "core/device/determinism.h"
#include "core/ops/kv_cache/cached_attention.h"
#include "core/system/log.h"
#if defined(QUENCH_HAVE_CUDNN)
#include "core/cuda/cudnn/attention.h"
#endif

namespace quench::cuda {
namespace {

CallCounter forward_cudnn("attention.cudnn"), forward_decode("attention.decode"), forward_tiled("attention.tiled"),
    forward_ordered("attention.ordered");
CallCounter backward_cudnn("attention_backward.cudnn"), backward_tiled("attention_backward.tiled");
CallCounter cudnn_refused("attention.cudnn_refused");

// Logs each reason once.
void note_refusal(std::string_view op, const Tensor& q, const Tensor& k, const std::string& reason) {
  cudnn_refused.add();
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  if (told.insert(reason).second)
    QUENCH_LOG_WARN("{} of {} and {} runs on the program's own kernels, which are slower: {}", op, q.describe(),
                    k.describe(), reason);
}

#if defined(QUENCH_HAVE_CUDNN)
constexpr auto try_cudnn_forward = cudnn_attention;
constexpr auto try_cudnn_backward = cudnn_attention_backward;
#else
template <class Args>
bool try_cudnn(const Args&, AttentionLayout, std::string& reason) {
  reason = "this build has no cuDNN";
  return false;
}
constexpr auto try_cudnn_forward = try_cudnn<AttentionArgs>;
constexpr auto try_cudnn_backward = try_cudnn<AttentionBackwardArgs>;
#endif

// Rows of [0, rows) outside every sequence, ascending.
std::vector<RowRange> uncovered(std::span<const SequenceRange> sequences, std::int64_t SequenceRange::*begin,
                                std::int64_t SequenceRange::*length, std::int64_t rows) {
  std::vector<RowRange> gaps;
  std::int64_t end = 0;
  for (const SequenceRange& s : sequences) {
    if (s.*length == 0) continue;
    if (s.*begin > end) gaps.push_back({end, s.*begin - end});
    end = s.*begin + s.*length;
  }
  if (end < rows) gaps.push_back({end, rows - end});
  return gaps;
}

std::vector<RowRange> uncovered_queries(std::span<const SequenceRange> sequences, std::int64_t rows) {
  return uncovered(sequences, &SequenceRange::q_begin, &SequenceRange::q_length, rows);
}
std::vector<RowRange> uncovered_keys(std::span<const SequenceRange> sequences, std::int64_t rows) {
  return uncovered(sequences, &SequenceRange::k_begin, &SequenceRange::k_length, rows);
}

// Without sinks.
void plain_attention(const AttentionArgs& args, AttentionLayout layout) {
  if (batch_invariant()) {
    forward_ordered.add();
    const LseLayout lse = lse_layout(layout, args.q, args.sequences);
    return ordered_attention_takes(args) ? ordered_attention(args, lse) : tiled_attention(args, lse);
  }
  // cuDNN has no soft cap in this graph.
  if (layout != AttentionLayout::general && args.soft_cap == 0.0f &&
      kernel_family_enabled(KernelFamily::cudnn_attention)) {
    std::string reason;
    if (run_kernel_family(KernelFamily::cudnn_attention, args.out,
                          [&] { return try_cudnn_forward(args, layout, reason); }))
      return forward_cudnn.add();
    note_refusal("attention", args.q, args.k, reason);
  }
  forward_tiled.add();
  tiled_attention(args, lse_layout(layout, args.q, args.sequences));
}

void attention_kernel(const AttentionArgs& args) {
  const AttentionLayout layout = attention_layout(args.q, args.k, args.sequences, args.causal);
  clear_rows(args.out, uncovered_queries(args.sequences, args.q.size(0)), args.lse, gap_lse_layout(layout, args.q));
  if (std::all_of(args.sequences.begin(), args.sequences.end(), [](const auto& s) { return s.q_length == 0; })) return;
  if (!batch_invariant() && decode_takes(args)) {
    forward_decode.add();
    return decode_attention(args);
  }
  QUENCH_CHECK_AS(ErrorCode::unsupported, !args.last_key.defined(),
                  "attention of {} and {}: only the kernel for few queries over aligned keys takes last_key",
                  args.q.describe(), args.k.describe());
  if (!args.sinks.defined()) return plain_attention(args, layout);
  const MemoryScope scope(MemoryCategory::workspace);
  AttentionArgs plain = args;
  plain.sinks = Tensor();
  if (!plain.lse.defined()) plain.lse = Tensor::empty({args.q.size(1), args.q.size(0)}, DType::f32, args.q.device());
  plain_attention(plain, layout);
  add_sinks(args, plain.lse, lse_layout(layout, args.q, args.sequences));
}

void attention_backward_kernel(const AttentionBackwardArgs& args) {
  const AttentionLayout layout = attention_layout(args.q, args.k, args.sequences, args.causal);
  clear_rows(args.dq, uncovered_queries(args.sequences, args.q.size(0)));
  const std::vector<RowRange> keys = uncovered_keys(args.sequences, args.k.size(0));
  clear_rows(args.dk, keys);
  clear_rows(args.dv, keys);
  if (args.dsinks.defined()) sink_gradients(args, lse_layout(layout, args.q, args.sequences));
  if (std::all_of(args.sequences.begin(), args.sequences.end(),
                  [](const auto& s) { return s.q_length == 0 && s.k_length == 0; }))
    return;
  // cuDNN has no soft cap in this graph.
  if (layout != AttentionLayout::general && args.soft_cap == 0.0f &&
      kernel_family_enabled(KernelFamily::cudnn_attention)) {
    std::string reason;
    if (run_kernel_family(KernelFamily::cudnn_attention, args.dq,
                          [&] { return try_cudnn_backward(args, layout, reason); }))
      return backward_cudnn.add();
    note_refusal("attention_backward", args.q, args.k, reason);
  }
  backward_tiled.add();
  tiled_attention_backward(args, lse_layout(layout, args.q, args.sequences));
}

void cached_attention_kernel(const CachedAttentionArgs& args) {
  const std::int64_t dim = args.out.size(1) / args.heads, width = args.kv_heads * dim;
  const auto heads = [dim](const Tensor& matrix, std::int64_t begin, std::int64_t count) {
    return matrix.strided({matrix.size(0), count, dim}, {matrix.size(1), dim, 1}, begin);
  };
  const NewToken new_token{.key = heads(args.qkv, args.heads * dim, args.kv_heads),
                           .value = heads(args.qkv, args.heads * dim + width, args.kv_heads),
                           .cos = args.cos,
                           .sin = args.sin,
                           .position = args.positions,
                           .hadamard = args.hadamard};
  forward_decode.add();
  if (args.scales.defined())
    return decode_coded_attention({.q = heads(args.qkv, 0, args.heads),
                                   .cache = args.cache,
                                   .scales = args.scales,
                                   .out = args.out.view({1, args.heads, dim}),
                                   .sequences = args.sequences,
                                   .window = args.window,
                                   .scale = args.scale,
                                   .soft_cap = args.soft_cap,
                                   .sinks = args.sinks,
                                   .last_key = args.length_on_device ? args.positions : Tensor()},
                                  &new_token);
  decode_attention({.q = heads(args.qkv, 0, args.heads),
                    .k = heads(args.cache, 0, args.kv_heads),
                    .v = heads(args.cache, width, args.kv_heads),
                    .out = args.out.view({1, args.heads, dim}),
                    .lse = {},
                    .sequences = args.sequences,
                    .window = args.window,
                    .scale = args.scale,
                    .soft_cap = args.soft_cap,
                    .sinks = args.sinks,
                    .last_key = args.length_on_device ? args.positions : Tensor()},
                   &new_token);
}

void coded_attention_kernel(const CodedAttentionArgs& args) {
  if (!coded_decode_takes(args)) return attend_decoded(args);
  clear_rows(args.out, uncovered_queries(args.sequences, args.q.size(0)));
  if (std::all_of(args.sequences.begin(), args.sequences.end(), [](const auto& s) { return s.q_length == 0; })) return;
  forward_decode.add();
  decode_coded_attention(args);
}

QUENCH_CUDA_KERNEL(cached_attention_slot, cached_attention_kernel);
QUENCH_CUDA_KERNEL(coded_attention_slot, coded_attention_kernel);
QUENCH_CUDA_KERNEL(attention_slot, attention_kernel);
QUENCH_CUDA_KERNEL(attention_backward_slot, attention_backward_kernel);

}  // namespace
}  // namespace quench::cuda
