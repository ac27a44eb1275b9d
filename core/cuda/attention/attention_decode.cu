// Decode attention, memory bound: kernel choice and launch. Query heads of a KV head share one read of the cache, which
// is split to occupy every SM (decode_split.cuh). Short caches are not split, and few query heads have a CTA each
// (decode_unsplit.cuh).

#include "core/cuda/attention/decode_launch.cuh"

namespace quench::cuda {

bool decode_takes(const AttentionArgs& args) {
  if (args.lse.defined() || args.q.size(2) > 256 || !heads_are_wide(args.k) || !heads_are_wide(args.v)) return false;
  return std::all_of(args.sequences.begin(), args.sequences.end(), [&](const SequenceRange& s) {
    return s.q_length <= kMaxQueries && s.k_length <= kMaxSplitKeys * kMaxSplits;
  });
}

void decode_attention(const AttentionArgs& args, const NewToken* new_token) {
  const std::int64_t dim = args.q.size(2);
  if (args.q.dtype() == DType::f32) {
    if (dim <= 64)
      decode_rows<DecodeShape<float, 16, 1>>(args, {}, new_token);
    else if (dim <= 128)
      decode_rows<DecodeShape<float, 32, 1>>(args, {}, new_token);
    else
      decode_rows<DecodeShape<float, 32, 2>>(args, {}, new_token);
  } else {
    if (dim <= 64)
      decode_rows<DecodeShape<bfloat16, 8, 1>>(args, {}, new_token);
    else if (dim <= 128)
      decode_rows<DecodeShape<bfloat16, 16, 1>>(args, {}, new_token);
    else
      decode_rows<DecodeShape<bfloat16, 32, 1>>(args, {}, new_token);
  }
}

}  // namespace quench::cuda
