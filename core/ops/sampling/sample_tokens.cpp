#include "core/ops/sampling/sample_tokens.h"

#include <cmath>
#include <limits>

#include "core/number/sampling_weight.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<SampleTokensArgs> sample_tokens_slot("sample_tokens");

float logprob_of(const SampledRow& row) {
  const double sum = static_cast<double>(row.sum) / static_cast<double>(kUnitWeight);
  return static_cast<float>(static_cast<double>(row.logit) - static_cast<double>(row.maximum) - std::log(sum));
}

void sample_tokens(const SampleTokensArgs& args) {
  constexpr std::string_view op = "sample_tokens";
  check_tensor(op, "logits", args.logits, {-1, -1}, DType::f32);
  check_contiguous(op, "logits", args.logits);
  const std::int64_t rows = args.logits.size(0), vocabulary = args.logits.size(1);
  QUENCH_CHECK(vocabulary > 0 && vocabulary <= (std::int64_t{1} << 22),
               "{}: logits are {}, expected at most 2^22 tokens", op, args.logits.describe());
  check_tensor(op, "rows", args.rows, {rows, static_cast<std::int64_t>(sizeof(SamplingRow))}, DType::u8);
  check_contiguous(op, "rows", args.rows);
  check_tensor(op, "sampled", args.sampled, {rows, static_cast<std::int64_t>(sizeof(SampledRow))}, DType::u8);
  check_contiguous(op, "sampled", args.sampled);
  check_tensor(op, "tokens", args.tokens, {-1}, DType::i32);
  check_contiguous(op, "tokens", args.tokens);
  const auto check_bits = [&](std::string_view name, const Tensor& bits) {
    if (!bits.defined()) return;
    check_tensor(op, name, bits, {args.tokens.size(0), -1}, DType::i32);
    check_contiguous(op, name, bits);
    QUENCH_CHECK(bits.size(1) * 32 >= vocabulary, "{}: {} is {}, of {} tokens", op, name, bits.describe(), vocabulary);
  };
  check_bits("seen", args.seen);
  check_bits("allowed", args.allowed);
  check_same_device(op, {&args.logits, &args.rows, &args.tokens, &args.seen, &args.sampled, &args.allowed});
  if (rows > 0) sample_tokens_slot(args.logits.device().type, args);
}

}  // namespace quench
