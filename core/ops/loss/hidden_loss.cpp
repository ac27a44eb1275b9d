#include "core/ops/loss/hidden_loss.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<HiddenLossArgs> hidden_loss_slot("hidden_loss");

void hidden_loss(const HiddenLossArgs& args) {
  constexpr std::string_view op = "hidden_loss";
  check_float_tensor(op, "student", args.student, 2);
  check_contiguous(op, "student", args.student);
  const Shape& shape = args.student.shape();
  for (const auto& [name, tensor] : {std::pair("teacher", args.teacher), std::pair("dstudent", args.dstudent)}) {
    check_tensor(op, name, tensor, shape, args.student.dtype());
    check_contiguous(op, name, tensor);
  }
  check_tensor(op, "labels", args.labels, {shape[0]}, DType::i32);
  check_contiguous(op, "labels", args.labels);
  check_tensor(op, "losses", args.losses, {shape[0]}, DType::f32);
  check_contiguous(op, "losses", args.losses);
  check_same_device(op, {&args.student, &args.teacher, &args.labels, &args.losses, &args.dstudent});
  if (args.student.numel() == 0) return;
  hidden_loss_slot(args.student.device().type, args);
}

}  // namespace quench
