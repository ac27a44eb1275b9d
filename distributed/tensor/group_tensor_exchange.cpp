#include "distributed/tensor/group_tensor_exchange.h"

#include "core/ops/elementwise.h"

namespace quench::distributed {

GroupTensorExchange::Pending GroupTensorExchange::pending(Tensor rows, Work work) const {
  return {std::move(rows),
          [clock = clock_, works = std::vector<Work>{std::move(work)}]() mutable { clock->wait(works); }};
}

GroupTensorExchange::Pending GroupTensorExchange::begin_gather(const Tensor& rows) const {
  const std::int64_t count = rows.size(0);
  const Tensor all = Tensor::empty({size() * count, rows.size(1)}, rows.dtype(), rows.device());
  const Tensor own = rows.is_contiguous() ? rows : all.narrow(0, rank() * count, count);
  if (!rows.is_contiguous()) copy_rows({.from = rows, .to = own});
  return pending(all, group_->all_gather(own, all, "token rows"));
}

GroupTensorExchange::Pending GroupTensorExchange::begin_reduce(const Tensor& whole) const {
  QUENCH_CHECK(whole.size(0) % size() == 0, "tensor exchange: {} rows of {} ranks", whole.size(0), size());
  const Tensor own = Tensor::empty({whole.size(0) / size(), whole.size(1)}, whole.dtype(), whole.device());
  return pending(own, group_->reduce_scatter(whole, own, ReduceOp::sum, "sums of token rows"));
}

}  // namespace quench::distributed
