#include "core/ops/experts/router.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<RouterArgs> router_slot("router");
constinit KernelSlot<RouterBackwardArgs> router_backward_slot("router_backward");
constinit KernelSlot<RouterLossArgs> router_loss_slot("router_loss");

namespace {

void check_logits(std::string_view op, const Tensor& logits) {
  QUENCH_CHECK(logits.defined() && logits.rank() == 2, "{}: logits are {}, expected f32 [N,E]", op, logits.describe());
  check_tensor(op, "logits", logits, logits.shape(), DType::f32);
  check_contiguous(op, "logits", logits);
}

void check_choice(std::string_view op, const Tensor& logits, const Tensor& experts, const Tensor& weights,
                  const RouterRule& rule) {
  check_logits(op, logits);
  QUENCH_CHECK(experts.defined() && experts.rank() == 2, "{}: experts are {}, expected i32 [N,k]", op,
               experts.describe());
  const std::int64_t tokens = logits.size(0), count = logits.size(1), chosen = experts.size(1);
  check_tensor(op, "experts", experts, {tokens, chosen}, DType::i32);
  check_tensor(op, "weights", weights, {tokens, chosen}, DType::f32);
  check_contiguous(op, "experts", experts);
  check_contiguous(op, "weights", weights);
  QUENCH_CHECK(rule.groups >= 1 && count % rule.groups == 0, "{}: {} experts do not form {} groups of equal size", op,
               count, rule.groups);
  QUENCH_CHECK(rule.groups_per_token >= 1 && rule.groups_per_token <= rule.groups,
               "{}: {} groups for each token of {} groups", op, rule.groups_per_token, rule.groups);
  const std::int64_t open = count / rule.groups * rule.groups_per_token;
  QUENCH_CHECK(chosen >= 1 && chosen <= open, "{}: {} experts for each token, of {} that it can choose from", op,
               chosen, open);
}

}  // namespace

void router(const RouterArgs& args) {
  constexpr std::string_view op = "router";
  check_choice(op, args.logits, args.experts, args.weights, args.rule);
  if (args.bias.defined()) {
    check_tensor(op, "bias", args.bias, {args.logits.size(1)}, DType::f32);
    check_contiguous(op, "bias", args.bias);
  }
  check_same_device(op, {&args.logits, &args.bias, &args.experts, &args.weights});
  if (args.logits.size(0) == 0) return;
  router_slot(args.logits.device().type, args);
}

void router_backward(const RouterBackwardArgs& args) {
  constexpr std::string_view op = "router_backward";
  check_choice(op, args.logits, args.experts, args.dweights, args.rule);
  check_tensor(op, "dlogits", args.dlogits, args.logits.shape(), DType::f32);
  check_contiguous(op, "dlogits", args.dlogits);
  if (args.terms.balance != 0.0f) check_tensor(op, "counts", args.counts, {args.logits.size(1)}, DType::f32);
  check_same_device(op, {&args.logits, &args.dweights, &args.experts, &args.counts, &args.dlogits});
  if (args.logits.size(0) == 0) return;
  router_backward_slot(args.logits.device().type, args);
}

void router_loss(const RouterLossArgs& args) {
  constexpr std::string_view op = "router_loss";
  check_logits(op, args.logits);
  check_tensor(op, "counts", args.counts, {args.logits.size(1)}, DType::f32);
  check_tensor(op, "losses", args.losses, {2}, DType::f32);
  check_same_device(op, {&args.logits, &args.counts, &args.losses});
  if (args.logits.size(0) == 0) return Tensor(args.losses).zero();
  router_loss_slot(args.logits.device().type, args);
}

}  // namespace quench
