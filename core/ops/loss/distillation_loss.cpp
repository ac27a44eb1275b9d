#include "core/ops/loss/distillation_loss.h"

#include "core/ops/loss/cross_entropy.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<DistillationLossArgs> distillation_loss_slot("distillation_loss");

void distillation_loss(const DistillationLossArgs& args) {
  constexpr std::string_view op = "distillation_loss";
  check_float_tensor(op, "logits", args.logits, 2);
  check_contiguous(op, "logits", args.logits);
  const std::int64_t n = args.logits.size(0), vocab = args.logits.size(1);
  check_tensor(op, "teacher", args.teacher, {n, vocab}, args.logits.dtype());
  check_contiguous(op, "teacher", args.teacher);
  check_tensor(op, "labels", args.labels, {n}, DType::i32);
  check_contiguous(op, "labels", args.labels);
  for (const auto& [name, tensor] :
       {std::pair("losses", args.losses), std::pair("cross_entropies", args.cross_entropies),
        std::pair("divergences", args.divergences)}) {
    check_tensor(op, name, tensor, {n}, DType::f32);
    check_contiguous(op, name, tensor);
  }
  if (args.dlogits.defined()) {
    check_float_tensor(op, "dlogits", args.dlogits, 2);
    check_tensor(op, "dlogits", args.dlogits, {n, vocab}, args.dlogits.dtype());
    check_contiguous(op, "dlogits", args.dlogits);
    QUENCH_CHECK(args.dlogits.raw_data() != args.logits.raw_data() || args.dlogits.dtype() == args.logits.dtype(),
                 "distillation_loss: dlogits ({}) may alias logits ({}) only with the same dtype",
                 args.dlogits.describe(), args.logits.describe());
  }
  QUENCH_CHECK(args.temperature > 0, "distillation_loss: temperature is {}", args.temperature);
  QUENCH_CHECK(args.beta > 0 && args.beta < 1, "distillation_loss: beta is {}", args.beta);
  check_same_device(op, {&args.logits, &args.teacher, &args.labels, &args.losses, &args.cross_entropies,
                         &args.divergences, &args.dlogits});
  if (args.logits.device().is_cpu()) {
    const auto* labels = args.labels.data<std::int32_t>();
    for (std::int64_t i = 0; i < n; ++i)
      QUENCH_CHECK(labels[i] == kIgnoreLabel || (labels[i] >= 0 && labels[i] < vocab),
                   "distillation_loss: label {} of row {} is neither {} nor in [0, {})", labels[i], i, kIgnoreLabel,
                   vocab);
  }
  if (n == 0) return;
  distillation_loss_slot(args.logits.device().type, args);
}

}  // namespace quench
