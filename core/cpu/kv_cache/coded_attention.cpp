// Attention of few queries over a quantized KV cache: codes are decoded in registers.

#include "core/ops/kv_cache/coded_attention.h"

#include <vector>

#include "core/cpu/attention_one_query.h"
#include "core/cpu/kv_cache/code_rows.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void coded_attention_kernel(const CodedAttentionArgs& args) {
  AttentionArgs call = coded_operands(args);
  std::vector<SequenceRange> queries;
  std::int64_t covered = 0, work = 0;
  for (const SequenceRange& s : args.sequences)
    for (std::int64_t i = 0; i < s.q_length; ++i) {
      const std::int64_t keys = visible_keys(s, true, i);
      queries.push_back({s.q_begin + i, 1, s.k_begin, keys});
      work += keys * args.q.size(1) * args.q.size(2);
      ++covered;
    }
  call.sequences = queries;
  const bool f32 = args.q.dtype() == DType::f32;
  if (covered < args.q.size(0)) f32 ? zero_rows<float>(args.out) : zero_rows<bfloat16>(args.out);
  dispatch_cache_codes(args.cache.dtype(), [&]<class, class Value>() {
    const auto rows = [&](std::int64_t head, bool values) {
      return CodeRows<Value>(args.cache, args.scales, head + (values ? call.k.size(1) : 0));
    };
    f32 ? single_queries<float>(call, work, rows) : single_queries<bfloat16>(call, work, rows);
  });
}

QUENCH_CPU_KERNEL(coded_attention_slot, coded_attention_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
