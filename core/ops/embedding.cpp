#include "core/ops/embedding.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<EmbeddingArgs> embedding_slot("embedding");
constinit KernelSlot<EmbeddingBackwardArgs> embedding_backward_slot("embedding_backward");

namespace {

void check_ids(std::string_view op, const Tensor& ids, std::int64_t rows) {
  if (!ids.device().is_cpu()) return;
  const auto* id = ids.data<std::int32_t>();
  for (std::int64_t i = 0; i < ids.size(0); ++i)
    QUENCH_CHECK(id[i] >= 0 && id[i] < rows, "{}: id {} at position {} is outside the table of {} rows", op, id[i], i,
                 rows);
}

}  // namespace

void embedding(const EmbeddingArgs& args) {
  constexpr std::string_view op = "embedding";
  check_float_tensor(op, "table", args.table, 2);
  check_contiguous(op, "table", args.table);
  check_tensor(op, "ids", args.ids, {-1}, DType::i32);
  check_contiguous(op, "ids", args.ids);
  check_tensor(op, "out", args.out, {args.ids.size(0), args.table.size(1)}, args.table.dtype());
  check_contiguous(op, "out", args.out);
  check_same_device(op, {&args.table, &args.ids, &args.out});
  check_ids(op, args.ids, args.table.size(0));
  if (args.out.numel() == 0) return;
  embedding_slot(args.table.device().type, args);
}

void embedding_backward(const EmbeddingBackwardArgs& args) {
  constexpr std::string_view op = "embedding_backward";
  check_float_tensor(op, "dout", args.dout, 2);
  check_contiguous(op, "dout", args.dout);
  check_tensor(op, "ids", args.ids, {args.dout.size(0)}, DType::i32);
  check_contiguous(op, "ids", args.ids);
  check_gradient_sum(op, "dtable", args.dtable, {-1, args.dout.size(1)}, args.dout.dtype());
  check_same_device(op, {&args.dout, &args.ids, &args.dtable});
  check_ids(op, args.ids, args.dtable.size(0));
  if (args.dout.numel() == 0) return;
  embedding_backward_slot(args.dout.device().type, args);
}

}  // namespace quench
