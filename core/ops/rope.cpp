#include "core/ops/rope.h"

#include <algorithm>

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<RopeArgs> rope_slot("rope");
constinit KernelSlot<RopeCodesArgs> rope_codes_slot("rope_codes");

void rope(const RopeArgs& args) {
  constexpr std::string_view op = "rope";
  check_float_tensor(op, "x", args.x, 3);
  check_contiguous_rows(op, "x", args.x);
  const std::int64_t n = args.x.size(0), dim = args.x.size(2);
  QUENCH_CHECK(dim % 2 == 0, "rope: the head dimension of x, {}, is odd", args.x.describe());
  check_tensor(op, "cos", args.cos, {-1, dim / 2}, DType::f32);
  check_tensor(op, "sin", args.sin, args.cos.shape(), DType::f32);
  check_contiguous(op, "cos", args.cos);
  check_contiguous(op, "sin", args.sin);
  check_tensor(op, "positions", args.positions, {n}, DType::i32);
  check_contiguous(op, "positions", args.positions);
  check_same_device(op, {&args.x, &args.cos, &args.sin, &args.positions});
  if (args.x.numel() == 0) return;
  if (args.x.device().is_cpu()) {
    const auto* positions = args.positions.data<std::int32_t>();
    for (std::int64_t i = 0; i < n; ++i)
      QUENCH_CHECK(positions[i] >= 0 && positions[i] < args.cos.size(0),
                   "rope: position {} of row {} is outside the table of {} positions", positions[i], i,
                   args.cos.size(0));
  }
  rope_slot(args.x.device().type, args);
}

void rope_codes(const RopeCodesArgs& args) {
  constexpr std::string_view op = "rope_codes";
  check_float_tensor(op, "x", args.x, 2);
  check_contiguous(op, "x", args.x);
  check_tensor(op, "cos", args.cos, {-1, -1}, DType::f32);
  check_tensor(op, "sin", args.sin, args.cos.shape(), DType::f32);
  check_contiguous(op, "cos", args.cos);
  check_contiguous(op, "sin", args.sin);
  check_tensor(op, "positions", args.positions, {args.x.size(0)}, DType::i32);
  check_contiguous(op, "positions", args.positions);
  const std::int64_t rotated = args.heads * 2 * args.cos.size(1);
  QUENCH_CHECK(args.heads >= 0 && rotated <= args.x.size(1), "{}: {} heads of {} elements in x, {}", op, args.heads,
               2 * args.cos.size(1), args.x.describe());
  check_same_device(op, {&args.x, &args.cos, &args.sin, &args.positions});
  check_quant_outputs(op, args.quant_outputs, {}, args.x.shape());
  if (args.x.numel() > 0) rope_codes_slot(args.x.device().type, args);
}

void rope_codes_of_copy(const RopeCodesArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor copy = args.x.clone();
  const std::int64_t dim = 2 * args.cos.size(1), width = copy.size(1);
  rope({.x = copy.strided({copy.size(0), args.heads, dim}, {width, dim, 1}, 0),
        .cos = args.cos,
        .sin = args.sin,
        .positions = args.positions,
        .inverse = args.inverse});
  fill_quant_outputs(args.quant_outputs, copy);
}

}  // namespace quench
