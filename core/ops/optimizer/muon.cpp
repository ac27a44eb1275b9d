#include "core/ops/optimizer/muon.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<MuonMomentumArgs> muon_momentum_slot("muon_momentum");
constinit KernelSlot<NormalizeGramArgs> normalize_gram_slot("normalize_gram");
constinit KernelSlot<MuonApplyArgs> muon_apply_slot("muon_apply");

namespace {

void check_like(std::string_view op, std::string_view name, const Tensor& tensor, const Tensor& like) {
  QUENCH_CHECK(tensor.defined() && is_f32_or_bf16(tensor.dtype()) && tensor.shape() == like.shape(),
               "{}: {} is {}, expected f32 or bf16 of the shape of {}", op, name, tensor.describe(), like.describe());
  check_contiguous(op, name, tensor);
  check_same_device(op, {&tensor, &like});
}

void check_scale(std::string_view op, const Tensor& scale, const Tensor& like) {
  if (!scale.defined()) return;
  check_tensor(op, "grad_scale", scale, {1}, DType::f32);
  check_same_device(op, {&scale, &like});
}

}  // namespace

void muon_momentum(const MuonMomentumArgs& args) {
  constexpr std::string_view op = "muon_momentum";
  QUENCH_CHECK(args.beta >= 0 && args.beta < 1, "{}: beta is {}, expected [0, 1)", op, args.beta);
  check_like(op, "grad", args.grad, args.grad);
  check_like(op, "momentum", args.momentum, args.grad);
  check_like(op, "update", args.update, args.grad);
  check_tensor(op, "update", args.update, args.grad.shape(), DType::bf16);
  check_scale(op, args.grad_scale, args.grad);
  if (args.grad.numel() > 0) muon_momentum_slot(args.grad.device().type, args);
}

void normalize_gram(const NormalizeGramArgs& args) {
  constexpr std::string_view op = "normalize_gram";
  check_float_tensor(op, "gram", args.gram, 3);
  check_tensor(op, "gram", args.gram, {args.gram.size(0), args.gram.size(2), args.gram.size(2)}, DType::bf16);
  check_contiguous(op, "gram", args.gram);
  check_tensor(op, "inverse_norms", args.inverse_norms, {args.gram.size(0)}, DType::f32);
  check_same_device(op, {&args.gram, &args.inverse_norms});
  if (args.gram.numel() > 0) normalize_gram_slot(args.gram.device().type, args);
}

void muon_apply(const MuonApplyArgs& args) {
  constexpr std::string_view op = "muon_apply";
  check_like(op, "param", args.param, args.param);
  check_like(op, "update", args.update, args.param);
  check_tensor(op, "update", args.update, args.param.shape(), DType::bf16);
  if (args.master.defined()) {
    check_like(op, "master", args.master, args.param);
    check_tensor(op, "master", args.master, args.param.shape(), DType::f32);
    QUENCH_CHECK(args.param.dtype() == DType::bf16, "{}: param is {}; only a bf16 param has a master", op,
                 args.param.describe());
  }
  check_scale(op, args.grad_scale, args.param);
  if (args.param.numel() > 0) muon_apply_slot(args.param.device().type, args);
}

}  // namespace quench
