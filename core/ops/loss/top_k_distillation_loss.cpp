#include "core/ops/loss/top_k_distillation_loss.h"

#include "core/ops/loss/cross_entropy.h"
#include "core/tensor/op_checks.h"

namespace quench {
namespace {

void check_values(const TopKDistillationLossArgs& args) {
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1), k = args.ids.size(1);
  const auto* labels = args.labels.data<std::int32_t>();
  const auto* ids = args.ids.data<std::int32_t>();
  for (std::int64_t i = 0; i < n; ++i) {
    if (labels[i] == kIgnoreLabel) continue;
    QUENCH_CHECK(labels[i] >= 0 && labels[i] < vocab,
                 "top_k_distillation_loss: label {} of row {} is neither {} nor in [0, {})", labels[i], i, kIgnoreLabel,
                 vocab);
    for (std::int64_t j = i * k; j < (i + 1) * k; ++j)
      QUENCH_CHECK(ids[j] >= 0 && ids[j] < vocab, "top_k_distillation_loss: id {} of row {} is not in [0, {})", ids[j],
                   i, vocab);
  }
}

}  // namespace

constinit KernelSlot<TopKDistillationLossArgs> top_k_distillation_loss_slot("top_k_distillation_loss");

void top_k_distillation_loss(const TopKDistillationLossArgs& args) {
  constexpr std::string_view op = "top_k_distillation_loss";
  check_float_tensor(op, "logits", args.logits, 2);
  check_contiguous(op, "logits", args.logits);
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1);
  QUENCH_CHECK(args.ids.rank() == 2, "top_k_distillation_loss: ids is {}, expected [N,K]", args.ids.describe());
  const std::int64_t k = args.ids.size(1);
  QUENCH_CHECK(k >= 1 && k <= vocab, "top_k_distillation_loss: {} of {} tokens", k, vocab);
  check_tensor(op, "ids", args.ids, {n, k}, DType::i32);
  check_contiguous(op, "ids", args.ids);
  check_tensor(op, "log_probs", args.log_probs, {n, k}, DType::f32);
  check_contiguous(op, "log_probs", args.log_probs);
  check_tensor(op, "labels", args.labels, {n}, DType::i32);
  check_contiguous(op, "labels", args.labels);
  for (const auto& [name, tensor] :
       {std::pair("tail", args.tail), std::pair("losses", args.losses),
        std::pair("cross_entropies", args.cross_entropies), std::pair("divergences", args.divergences)}) {
    check_tensor(op, name, tensor, {n}, DType::f32);
    check_contiguous(op, name, tensor);
  }
  if (args.dlogits.defined()) {
    check_float_tensor(op, "dlogits", args.dlogits, 2);
    check_tensor(op, "dlogits", args.dlogits, {n, vocab}, args.dlogits.dtype());
    check_contiguous(op, "dlogits", args.dlogits);
    QUENCH_CHECK(args.dlogits.raw_data() != args.logits.raw_data() || args.dlogits.dtype() == args.logits.dtype(),
                 "top_k_distillation_loss: dlogits ({}) may alias logits ({}) only with the same dtype",
                 args.dlogits.describe(), args.logits.describe());
  }
  QUENCH_CHECK(args.temperature > 0, "top_k_distillation_loss: temperature is {}", args.temperature);
  QUENCH_CHECK(args.beta > 0 && args.beta < 1, "top_k_distillation_loss: beta is {}", args.beta);
  check_same_device(op, {&args.logits, &args.ids, &args.log_probs, &args.tail, &args.labels, &args.losses,
                         &args.cross_entropies, &args.divergences, &args.dlogits});
  if (args.logits.device().is_cpu()) check_values(args);
  if (n > 0) top_k_distillation_loss_slot(args.logits.device().type, args);
}

}  // namespace quench
