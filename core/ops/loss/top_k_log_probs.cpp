#include "core/ops/loss/top_k_log_probs.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<TopKLogProbsArgs> top_k_log_probs_slot("top_k_log_probs");

void top_k_log_probs(const TopKLogProbsArgs& args) {
  constexpr std::string_view op = "top_k_log_probs";
  check_float_tensor(op, "logits", args.logits, 2);
  check_contiguous(op, "logits", args.logits);
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1);
  QUENCH_CHECK(args.ids.rank() == 2, "top_k_log_probs: ids is {}, expected [N,K]", args.ids.describe());
  const std::int64_t k = args.ids.size(1);
  QUENCH_CHECK(k >= 1 && k <= vocab, "top_k_log_probs: {} of {} tokens", k, vocab);
  check_tensor(op, "ids", args.ids, {n, k}, DType::i32);
  check_contiguous(op, "ids", args.ids);
  check_tensor(op, "log_probs", args.log_probs, {n, k}, DType::f32);
  check_contiguous(op, "log_probs", args.log_probs);
  check_tensor(op, "tail", args.tail, {n}, DType::f32);
  check_contiguous(op, "tail", args.tail);
  QUENCH_CHECK(args.temperature > 0, "top_k_log_probs: temperature is {}", args.temperature);
  check_same_device(op, {&args.logits, &args.ids, &args.log_probs, &args.tail});
  if (n > 0) top_k_log_probs_slot(args.logits.device().type, args);
}

}  // namespace quench
