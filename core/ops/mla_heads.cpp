#include "core/ops/mla_heads.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<MlaHeadsArgs> mla_heads_slot("mla_heads");
constinit KernelSlot<MlaHeadsBackwardArgs> mla_heads_backward_slot("mla_heads_backward");

namespace {

void check_operands(std::string_view op, const MlaHeadsShape& shape, const Tensor& q, const Tensor& kv,
                    const Tensor& key, const Tensor& fused, const Tensor& cos, const Tensor& sin,
                    const Tensor& positions) {
  QUENCH_CHECK(shape.heads >= 1 && shape.plain >= 0 && shape.rotary >= 2 && shape.rotary % 2 == 0 && shape.value >= 1 &&
                   shape.value <= shape.width(),
               "{}: {} heads of {} plain and {} rotated columns, values of {}", op, shape.heads, shape.plain,
               shape.rotary, shape.value);
  check_float_tensor(op, "q", q, 2);
  const std::int64_t tokens = q.size(0);
  check_tensor(op, "q", q, {tokens, shape.heads * shape.width()}, q.dtype());
  check_tensor(op, "kv", kv, {tokens, shape.heads * (shape.plain + shape.value)}, q.dtype());
  check_tensor(op, "key", key, {tokens, shape.rotary}, q.dtype());
  check_tensor(op, "fused heads", fused, {tokens, 3 * shape.heads * shape.width()}, q.dtype());
  check_tensor(op, "cos", cos, {-1, shape.rotary / 2}, DType::f32);
  check_tensor(op, "sin", sin, cos.shape(), DType::f32);
  check_tensor(op, "positions", positions, {tokens}, DType::i32);
  for (const auto& [name, tensor] : {std::pair("q", &q), std::pair("kv", &kv), std::pair("key", &key),
                                     std::pair("fused heads", &fused), std::pair("cos", &cos), std::pair("sin", &sin)})
    check_contiguous(op, name, *tensor);
  check_same_device(op, {&q, &kv, &key, &fused, &cos, &sin, &positions});
}

}  // namespace

void mla_heads(const MlaHeadsArgs& args) {
  check_operands("mla_heads", args.shape, args.q, args.kv, args.key, args.out, args.cos, args.sin, args.positions);
  if (args.out.numel() == 0) return;
  mla_heads_slot(args.out.device().type, args);
}

void mla_heads_backward(const MlaHeadsBackwardArgs& args) {
  check_operands("mla_heads_backward", args.shape, args.dq, args.dkv, args.dkey, args.dout, args.cos, args.sin,
                 args.positions);
  if (args.dout.numel() == 0) return;
  mla_heads_backward_slot(args.dout.device().type, args);
}

}  // namespace quench
