#include "core/ops/loss/distillation_loss.h"

#include "core/ops/loss/cross_entropy.h"
#include "core/tensor/op_checks.h"

namespace quench {
namespace {

constexpr std::string_view kOp = "distillation_loss";

void check_target(const DivergenceTarget& target, std::int64_t n, std::int64_t vocab, DType dtype) {
  QUENCH_CHECK(target.is_top_k() != target.logits.defined(),
               "distillation_loss: a target is logits, or ids with log-probabilities and tail");
  if (!target.is_top_k()) {
    check_tensor(kOp, "target.logits", target.logits, {n, vocab}, dtype);
    check_contiguous(kOp, "target.logits", target.logits);
    return;
  }
  QUENCH_CHECK(target.ids.rank() == 2, "distillation_loss: target.ids is {}, expected [N,K]", target.ids.describe());
  const std::int64_t k = target.ids.size(1);
  QUENCH_CHECK(k >= 1 && k <= vocab, "distillation_loss: {} of {} tokens", k, vocab);
  check_tensor(kOp, "target.ids", target.ids, {n, k}, DType::i32);
  check_tensor(kOp, "target.log_probs", target.log_probs, {n, k}, DType::f32);
  check_tensor(kOp, "target.tail", target.tail, {n}, DType::f32);
  check_contiguous(kOp, "target.ids", target.ids);
  check_contiguous(kOp, "target.log_probs", target.log_probs);
  check_contiguous(kOp, "target.tail", target.tail);
}

void check_values(const DistillationLossArgs& args) {
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1);
  const auto* labels = args.labels.data<std::int32_t>();
  for (std::int64_t i = 0; i < n; ++i) {
    if (labels[i] == kIgnoreLabel) continue;
    QUENCH_CHECK(labels[i] >= 0 && labels[i] < vocab,
                 "distillation_loss: label {} of row {} is neither {} nor in [0, {})", labels[i], i, kIgnoreLabel,
                 vocab);
    if (!args.target.is_top_k()) continue;
    const std::int64_t k = args.target.ids.size(1);
    const auto* ids = args.target.ids.data<std::int32_t>();
    for (std::int64_t j = i * k; j < (i + 1) * k; ++j)
      QUENCH_CHECK(ids[j] >= 0 && ids[j] < vocab, "distillation_loss: id {} of row {} is not in [0, {})", ids[j], i,
                   vocab);
  }
}

}  // namespace

constinit KernelSlot<DistillationLossArgs> distillation_loss_slot("distillation_loss");

void distillation_loss(const DistillationLossArgs& args) {
  check_float_tensor(kOp, "logits", args.logits, 2);
  check_contiguous(kOp, "logits", args.logits);
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1);
  check_target(args.target, n, vocab, args.logits.dtype());
  check_tensor(kOp, "labels", args.labels, {n}, DType::i32);
  check_contiguous(kOp, "labels", args.labels);
  for (const auto& [name, tensor] :
       {std::pair("losses", args.losses), std::pair("cross_entropies", args.cross_entropies),
        std::pair("divergences", args.divergences)}) {
    check_tensor(kOp, name, tensor, {n}, DType::f32);
    check_contiguous(kOp, name, tensor);
  }
  if (args.dlogits.defined()) {
    check_float_tensor(kOp, "dlogits", args.dlogits, 2);
    check_tensor(kOp, "dlogits", args.dlogits, {n, vocab}, args.dlogits.dtype());
    check_contiguous(kOp, "dlogits", args.dlogits);
    QUENCH_CHECK(args.dlogits.raw_data() != args.logits.raw_data() || args.dlogits.dtype() == args.logits.dtype(),
                 "distillation_loss: dlogits ({}) may alias logits ({}) only with the same dtype",
                 args.dlogits.describe(), args.logits.describe());
  }
  QUENCH_CHECK(args.temperature > 0, "distillation_loss: temperature is {}", args.temperature);
  QUENCH_CHECK(args.beta > 0 && args.beta < 1, "distillation_loss: beta is {}", args.beta);
  check_same_device(kOp,
                    {&args.logits, &args.target.logits, &args.target.ids, &args.target.log_probs, &args.target.tail,
                     &args.labels, &args.losses, &args.cross_entropies, &args.divergences, &args.dlogits});
  if (args.logits.device().is_cpu()) check_values(args);
  if (n > 0) distillation_loss_slot(args.logits.device().type, args);
}

}  // namespace quench
