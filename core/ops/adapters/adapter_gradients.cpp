#include "core/ops/adapters/adapter_gradients.h"

#include "core/ops/gemm.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<AdapterGradientsArgs> adapter_gradients_slot("adapter_gradients");

std::string op_label(const AdapterGradientsArgs& args) {
  return fmt::format("adapter gradients {}x{}+{} {}", args.dy.size(0), args.dy.size(1), args.hidden.size(1),
                     to_string(args.dy.dtype()));
}

void adapter_gradients(const AdapterGradientsArgs& args) {
  constexpr std::string_view op = "adapter_gradients";
  const auto& [dy, hidden, dhidden, pieces] = args;
  check_float_tensor(op, "dy", dy, 2);
  const std::int64_t m = dy.size(0);
  check_tensor(op, "hidden", hidden, {m, -1}, dy.dtype());
  check_tensor(op, "dhidden", dhidden, hidden.shape(), dy.dtype());
  for (const auto& [name, tensor] : {std::pair{"dy", &dy}, {"hidden", &hidden}, {"dhidden", &dhidden}})
    check_contiguous_rows(op, name, *tensor);
  check_same_device(op, {&dy, &hidden, &dhidden});
  std::int64_t next_column = 0, next_rank = 0;
  for (const AdapterGradientPiece& piece : pieces) {
    check_tensor(op, "b", piece.b, {-1, -1}, dy.dtype());
    check_contiguous(op, "b", piece.b);
    if (piece.db.defined()) check_gradient_sum(op, "db", piece.db, piece.b.shape(), dy.dtype());
    check_same_device(op, {&dy, &piece.b, &piece.db});
    const std::int64_t n = piece.b.size(0), rank = piece.b.size(1);
    QUENCH_CHECK(
        piece.column >= next_column && piece.column + n <= dy.size(1) && piece.rank_begin >= next_rank &&
            piece.rank_begin + rank <= hidden.size(1),
        "{}: a piece of columns {} to {} of dy and {} to {} of hidden, where dy is {}, hidden {} and the piece "
        "before it ends at {} and {}",
        op, piece.column, piece.column + n, piece.rank_begin, piece.rank_begin + rank, dy.describe(), hidden.describe(),
        next_column, next_rank);
    next_column = piece.column + n;
    next_rank = piece.rank_begin + rank;
  }
  if (pieces.empty()) return;
  if (m == 0 || !adapter_gradients_slot.filled(dy.device().type)) return adapter_gradients_in_products(args);
  adapter_gradients_slot(dy.device().type, args);
}

void adapter_gradients_in_products(const AdapterGradientsArgs& args) {
  for (const AdapterGradientPiece& piece : args.pieces) {
    const std::int64_t rank = piece.b.size(1);
    const Tensor columns = args.dy.narrow(1, piece.column, piece.b.size(0));
    gemm({.a = columns, .b = piece.b, .c = args.dhidden.narrow(1, piece.rank_begin, rank), .alpha = piece.scale});
    if (!piece.db.defined()) continue;
    gemm({.a = columns,
          .b = args.hidden.narrow(1, piece.rank_begin, rank),
          .c = piece.db,
          .transpose_a = true,
          .alpha = piece.gradient_scale,
          .beta = piece.accumulate ? 1.0f : 0.0f});
  }
}

}  // namespace quench
