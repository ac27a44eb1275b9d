#include "core/ops/loss/answer_loss.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<AnswerSumsArgs> answer_sums_slot("answer_sums");
constinit KernelSlot<AnswerLossArgs> answer_loss_slot("answer_loss");
constinit KernelSlot<AnswerFactorsArgs> answer_factors_slot("answer_factors");
constinit KernelSlot<AnswerDivergenceArgs> answer_divergence_slot("answer_divergence");

namespace {

void check_operand(std::string_view op, std::string_view name, const Tensor& tensor, const Shape& shape, DType dtype) {
  check_tensor(op, name, tensor, shape, dtype);
  check_contiguous(op, name, tensor);
}

// i32 [P,2]
void check_pairs(std::string_view op, const Tensor& pairs) {
  QUENCH_CHECK(pairs.defined() && pairs.rank() == 2 && pairs.size(1) == 2, "{}: pairs is {}, expected i32 [P,2]", op,
               pairs.defined() ? pairs.describe() : "undefined");
  check_operand(op, "pairs", pairs, pairs.shape(), DType::i32);
}

}  // namespace

void answer_sums(const AnswerSumsArgs& args) {
  constexpr std::string_view op = "answer_sums";
  const std::int64_t answers = args.logps.numel(), rows = args.losses.numel();
  check_operand(op, "ranges", args.rows.ranges, {answers, 2}, DType::i32);
  check_operand(op, "owners", args.rows.owners, {rows}, DType::i32);
  check_operand(op, "losses", args.losses, {rows}, DType::f32);
  check_operand(op, "logps", args.logps, {answers}, DType::f64);
  check_same_device(op, {&args.rows.ranges, &args.rows.owners, &args.losses, &args.logps});
  if (answers > 0) answer_sums_slot(args.logps.device().type, args);
}

void answer_loss(const AnswerLossArgs& args) {
  constexpr std::string_view op = "answer_loss";
  const std::int64_t answers = args.logps.numel();
  check_operand(op, "logps", args.logps, {answers}, DType::f64);
  check_operand(op, "tokens", args.tokens, {answers}, DType::i32);
  check_operand(op, "derivatives", args.derivatives, {answers}, DType::f64);
  check_operand(op, "value", args.value, {1}, DType::f32);
  check_pairs(op, args.pairs);
  check_same_device(op, {&args.logps, &args.tokens, &args.derivatives, &args.value, &args.pairs});
  const auto check_optional = [&](std::string_view name, const Tensor& tensor, const Shape& shape, DType dtype) {
    if (!tensor.defined()) return;
    check_operand(op, name, tensor, shape, dtype);
    check_same_device(op, {&args.logps, &tensor});
  };
  check_optional("reference", args.reference, {answers}, DType::f64);
  check_optional("divergence", args.divergence, {2}, DType::f64);
  check_optional("prompts", args.prompts, {answers}, DType::f64);
  check_optional("metrics", args.metrics, {answer_metrics(args.options.loss)}, DType::f32);
  QUENCH_CHECK(args.options.loss != AnswerLoss::kto || args.divergence.defined(), "{}: kto without divergence", op);
  answer_loss_slot(args.logps.device().type, args);
}

void answer_factors(const AnswerFactorsArgs& args) {
  constexpr std::string_view op = "answer_factors";
  const std::int64_t rows = args.factors.numel();
  check_operand(op, "owners", args.owners, {rows}, DType::i32);
  check_operand(op, "derivatives", args.derivatives, {args.derivatives.numel()}, DType::f64);
  check_operand(op, "factors", args.factors, {rows}, DType::f32);
  check_same_device(op, {&args.owners, &args.derivatives, &args.factors});
  if (args.prompts.defined()) {
    check_operand(op, "prompts", args.prompts, {rows}, DType::i32);
    check_same_device(op, {&args.owners, &args.prompts});
  }
  if (rows > 0) answer_factors_slot(args.factors.device().type, args);
}

void answer_divergence(const AnswerDivergenceArgs& args) {
  constexpr std::string_view op = "answer_divergence";
  const std::int64_t answers = args.logps.numel();
  check_operand(op, "logps", args.logps, {answers}, DType::f64);
  check_operand(op, "sums", args.sums, {2}, DType::f64);
  check_pairs(op, args.pairs);
  check_same_device(op, {&args.logps, &args.sums, &args.pairs});
  if (args.reference.defined()) {
    check_operand(op, "reference", args.reference, {answers}, DType::f64);
    check_same_device(op, {&args.logps, &args.reference});
  }
  answer_divergence_slot(args.logps.device().type, args);
}

}  // namespace quench
