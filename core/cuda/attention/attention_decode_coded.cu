// Decode attention over a quantized KV cache: kernel choice.

#include "core/cuda/attention/decode_launch.cuh"
#include "core/ops/kv_cache/cache_codes.h"

namespace quench::cuda {
namespace {

template <class C>
void decode_codes_of(const AttentionArgs& args, const CacheScales& scales, const NewToken* new_token) {
  const std::int64_t dim = args.q.size(2);
  if (dim <= 64)
    decode_rows<DecodeShape<bfloat16, 8, 1, kSplitThreads, C>>(args, scales, new_token);
  else if (dim <= 128)
    decode_rows<DecodeShape<bfloat16, 16, 1, kSplitThreads, C>>(args, scales, new_token);
  else
    decode_rows<DecodeShape<bfloat16, 32, 1, kSplitThreads, C>>(args, scales, new_token);
}

}  // namespace

bool coded_decode_takes(const CodedAttentionArgs& args) {
  const std::int64_t dim = args.q.size(2);
  return args.q.dtype() == DType::bf16 && dim <= 256 && dim % 8 == 0 &&
         reinterpret_cast<std::uintptr_t>(args.cache.raw_data()) % 8 == 0 &&
         std::ranges::all_of(args.sequences, [](const SequenceRange& s) {
           return s.q_length <= kMaxQueries && s.k_length <= kMaxSplitKeys * kMaxSplits;
         });
}

void decode_coded_attention(const CodedAttentionArgs& args, const NewToken* new_token) {
  const AttentionArgs call = coded_operands(args);
  const CacheScales scales{args.scales.data<float>(), scale_stride(args.scales), static_cast<int>(call.k.size(1))};
  args.cache.dtype() == DType::f8_e4m3 ? decode_codes_of<Float8>(call, scales, new_token)
                                       : decode_codes_of<Int8>(call, scales, new_token);
}

}  // namespace quench::cuda
