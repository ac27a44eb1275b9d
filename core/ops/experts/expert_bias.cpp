#include "core/ops/experts/expert_bias.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<ExpertBiasArgs> expert_bias_slot("expert_bias");

void update_expert_bias(const ExpertBiasArgs& args) {
  constexpr std::string_view op = "expert_bias";
  check_tensor(op, "counts", args.counts, {-1}, DType::f32);
  check_tensor(op, "bias", args.bias, {-1}, DType::f32);
  check_contiguous(op, "counts", args.counts);
  check_contiguous(op, "bias", args.bias);
  QUENCH_CHECK(args.first >= 0 && args.first + args.bias.size(0) <= args.counts.size(0), "{}: experts {} to {} of {}",
               op, args.first, args.first + args.bias.size(0), args.counts.size(0));
  check_same_device(op, {&args.counts, &args.bias});
  if (args.bias.numel() == 0) return;
  expert_bias_slot(args.bias.device().type, args);
}

}  // namespace quench
