#include "core/ops/experts/group_bias.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<GroupBiasArgs> group_bias_slot("group_bias");
constinit KernelSlot<GroupBiasBackwardArgs> group_bias_backward_slot("group_bias_backward");

namespace {

void check_group_rows(std::string_view op, const Tensor& rows, const Tensor& bias, const Tensor& ends,
                      const Tensor& pairs, const Tensor& weights) {
  check_float_tensor(op, "rows", rows, 2);
  check_contiguous(op, "rows", rows);
  check_tensor(op, "ends", ends, {-1}, DType::i32);
  check_tensor(op, "bias", bias, {ends.size(0), rows.size(1)}, rows.dtype());
  check_tensor(op, "pairs", pairs, {rows.size(0)}, DType::i32);
  for (const auto& [name, tensor] : {std::pair{"ends", &ends}, {"bias", &bias}, {"pairs", &pairs}})
    check_contiguous(op, name, *tensor);
  if (!weights.defined()) return;
  check_tensor(op, "weights", weights, {-1, -1}, DType::f32);
  check_contiguous(op, "weights", weights);
}

}  // namespace

void add_group_bias(const GroupBiasArgs& args) {
  constexpr std::string_view op = "add_group_bias";
  check_group_rows(op, args.y, args.bias, args.ends, args.pairs, args.weights);
  check_same_device(op, {&args.y, &args.bias, &args.ends, &args.pairs, &args.weights});
  if (args.y.numel() == 0) return;
  group_bias_slot(args.y.device().type, args);
}

void group_bias_backward(const GroupBiasBackwardArgs& args) {
  constexpr std::string_view op = "group_bias_backward";
  check_group_rows(op, args.dy, args.bias, args.ends, args.pairs, args.weights);
  if (args.dbias.defined()) {
    check_tensor(op, "dbias", args.dbias, args.bias.shape(),
                 args.dbias.dtype() == DType::f32 ? DType::f32 : args.dy.dtype());
    check_contiguous(op, "dbias", args.dbias);
  }
  if (args.dweights.defined()) {
    QUENCH_CHECK(args.weights.defined(), "{}: dweights without weights", op);
    check_tensor(op, "dweights", args.dweights, args.weights.shape(), DType::f32);
    check_contiguous(op, "dweights", args.dweights);
  }
  check_same_device(op, {&args.dy, &args.bias, &args.ends, &args.pairs, &args.weights, &args.dbias, &args.dweights});
  if (args.dy.size(1) == 0) return;
  group_bias_backward_slot(args.dy.device().type, args);
}

}  // namespace quench
