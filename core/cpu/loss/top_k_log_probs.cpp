#include "core/ops/loss/top_k_log_probs.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/cpu/loss/divergence_terms.h"
#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

template <class T>
void top_k_rows(const TopKLogProbsArgs& args) {
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1), k = args.ids.size(1);
  const float scale = 1.0f / args.temperature;
  parallel_ranges(n, 4 * n * vocab, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(vocab));
    std::vector<float> rest(static_cast<std::size_t>(vocab));
    for (std::int64_t i = begin; i < end; ++i) {
      const T* row = args.logits.data<T>() + i * vocab;
      std::int32_t* ids = args.ids.data<std::int32_t>() + i * k;
      float* log_probs = args.log_probs.data<float>() + i * k;
      std::copy(row, row + vocab, rest.begin());
      std::iota(order.begin(), order.end(), 0);
      const auto before = [&](std::int32_t a, std::int32_t b) {
        const float x = rest[static_cast<std::size_t>(a)], y = rest[static_cast<std::size_t>(b)];
        return x > y || (x == y && a < b);
      };
      const float whole = log_sum_exp(rest.data(), vocab, scale);
      // NaN has no order.
      if (k < vocab && whole == whole) std::nth_element(order.begin(), order.begin() + k, order.end(), before);
      std::copy_n(order.begin(), k, ids);
      std::sort(ids, ids + k);
      for (std::int64_t j = 0; j < k; ++j) {
        float& logit = rest[static_cast<std::size_t>(ids[j])];
        log_probs[j] = logit * scale - whole;
        logit = -INFINITY;
      }
      args.tail.data<float>()[i] = k < vocab ? log_sum_exp(rest.data(), vocab, scale) - whole : -INFINITY;
    }
  });
}

void top_k_log_probs_kernel(const TopKLogProbsArgs& args) {
  dispatch<float, bfloat16>(args.logits.dtype(), "top_k_log_probs", [&]<class T>() { top_k_rows<T>(args); });
}

QUENCH_CPU_KERNEL(top_k_log_probs_slot, top_k_log_probs_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
