#include "core/ops/experts/token_permutation.h"

#include "core/ops/quantize/quantize.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<TokenPermutationArgs> token_permutation_slot("token_permutation");
constinit KernelSlot<PermuteTokensArgs> permute_tokens_slot("permute_tokens");
constinit KernelSlot<UnpermuteTokensArgs> unpermute_tokens_slot("unpermute_tokens");
constinit KernelSlot<ExpertSwigluArgs> expert_swiglu_slot("expert_swiglu");
constinit KernelSlot<ExpertSwigluBackwardArgs> expert_swiglu_backward_slot("expert_swiglu_backward");

namespace {

void check_indices(std::string_view op, std::string_view name, const Tensor& tensor, int rank) {
  QUENCH_CHECK(tensor.defined() && tensor.rank() == rank && tensor.dtype() == DType::i32,
               "{}: {} is {}, expected i32 of rank {}", op, name, tensor.describe(), rank);
  check_contiguous(op, name, tensor);
}

void check_matrix(std::string_view op, std::string_view name, const Tensor& tensor) {
  check_float_tensor(op, name, tensor, 2);
  check_contiguous(op, name, tensor);
}

void check_like(std::string_view op, std::string_view name, const Tensor& tensor, const Shape& shape, DType dtype) {
  check_tensor(op, name, tensor, shape, dtype);
  check_contiguous(op, name, tensor);
}

void check_unit(std::string_view op, const std::optional<ClampedUnit>& clamped, bool score_before_experts) {
  if (!clamped) return;
  QUENCH_CHECK(clamped->limit > 0 && !score_before_experts, "{}: clamped unit with limit {}{}", op, clamped->limit,
               score_before_experts ? " and score_before_experts" : "");
}

void check_swiglu(std::string_view op, const Tensor& gate_up, const Tensor& weights, const Tensor& pairs,
                  const Tensor& out) {
  check_matrix(op, "gate_up", gate_up);
  QUENCH_CHECK(gate_up.size(1) % 2 == 0, "{}: gate_up is {}, its width must be even", op, gate_up.describe());
  check_like(op, "out", out, {gate_up.size(0), gate_up.size(1) / 2}, gate_up.dtype());
  check_like(op, "weights", weights, {-1, -1}, DType::f32);
  check_indices(op, "pairs", pairs, 1);
  check_like(op, "pairs", pairs, {gate_up.size(0)}, DType::i32);
}

}  // namespace

void token_permutation(const TokenPermutationArgs& args) {
  constexpr std::string_view op = "token_permutation";
  check_indices(op, "experts", args.experts, 2);
  check_like(op, "counts", args.counts, {-1}, DType::f32);
  const std::int64_t experts = args.counts.size(0), pairs = args.experts.numel();
  QUENCH_CHECK(args.alignment >= 1 && experts >= 1, "{}: alignment {} of {} experts", op, args.alignment, experts);
  check_like(op, "ends", args.ends, {experts}, DType::i32);
  check_like(op, "rows", args.rows, args.experts.shape(), DType::i32);
  check_like(op, "pairs", args.pairs, {permuted_row_capacity(pairs, experts, args.alignment)}, DType::i32);
  QUENCH_CHECK(args.pairs.numel() < std::int64_t{1} << 31, "{}: {} rows are too many", op, args.pairs.numel());
  check_same_device(op, {&args.experts, &args.counts, &args.ends, &args.rows, &args.pairs});
  token_permutation_slot(args.experts.device().type, args);
}

void permute_tokens(const PermuteTokensArgs& args) {
  constexpr std::string_view op = "permute_tokens";
  check_float_tensor(op, "x", args.x, 2);
  check_contiguous_rows(op, "x", args.x);
  check_indices(op, "pairs", args.pairs, 1);
  QUENCH_CHECK(args.choices >= 1, "{}: {} choices of each token", op, args.choices);
  check_like(op, "out", args.out, {args.pairs.size(0), args.x.size(1)}, args.x.dtype());
  check_same_device(op, {&args.x, &args.pairs, &args.out});
  if (args.out.numel() == 0) return;
  permute_tokens_slot(args.out.device().type, args);
}

void unpermute_tokens(const UnpermuteTokensArgs& args) {
  constexpr std::string_view op = "unpermute_tokens";
  check_matrix(op, "y", args.y);
  check_indices(op, "rows", args.rows, 2);
  check_tensor(op, "out", args.out, {args.rows.size(0), args.y.size(1)}, args.y.dtype());
  check_contiguous_rows(op, "out", args.out);
  check_same_device(op, {&args.y, &args.rows, &args.out});
  if (args.out.numel() == 0) return;
  unpermute_tokens_slot(args.out.device().type, args);
}

void expert_swiglu(const ExpertSwigluArgs& args) {
  constexpr std::string_view op = "expert_swiglu";
  check_swiglu(op, args.gate_up, args.weights, args.pairs, args.out);
  check_unit(op, args.clamped, args.score_before_experts);
  QUENCH_CHECK(!args.round || args.out.size(1) % kMxBlockSize == 0, "{}: out is {}; blocks of MX need a multiple of {}",
               op, args.out.describe(), kMxBlockSize);
  check_same_device(op, {&args.gate_up, &args.weights, &args.pairs, &args.out});
  if (args.out.numel() == 0) return;
  expert_swiglu_slot(args.out.device().type, args);
}

void expert_swiglu_backward(const ExpertSwigluBackwardArgs& args) {
  constexpr std::string_view op = "expert_swiglu_backward";
  check_swiglu(op, args.gate_up, args.weights, args.pairs, args.dout);
  check_unit(op, args.clamped, args.score_before_experts);
  check_like(op, "dgate_up", args.dgate_up, args.gate_up.shape(), args.gate_up.dtype());
  check_like(op, "dweights", args.dweights, args.weights.shape(), DType::f32);
  if (args.out.defined()) check_like(op, "out", args.out, args.dout.shape(), args.gate_up.dtype());
  check_same_device(op,
                    {&args.dout, &args.gate_up, &args.weights, &args.pairs, &args.dgate_up, &args.dweights, &args.out});
  if (args.dout.numel() == 0) return;
  expert_swiglu_backward_slot(args.dout.device().type, args);
}

}  // namespace quench
