#include "distributed/context/context_exchange.h"

#include "core/ops/elementwise.h"

namespace quench::distributed {

void ContextExchange::wait(Work work) const {
  std::vector<Work> works;
  works.push_back(std::move(work));
  clock_->wait(works);
}

Tensor ContextExchange::gather(const Tensor& rows) const {
  const std::int64_t count = rows.size(0);
  const Tensor all = Tensor::empty({size() * count, rows.size(1)}, rows.dtype(), rows.device());
  const Tensor own = all.narrow(0, group_->rank() * count, count);
  copy_rows({.from = rows, .to = own});
  wait(group_->all_gather(own, all, "keys and values"));
  return all;
}

Tensor ContextExchange::reduce(const Tensor& gradients) const {
  QUENCH_CHECK(gradients.size(0) % size() == 0, "context exchange: {} rows of {} ranks", gradients.size(0), size());
  const std::int64_t count = gradients.size(0) / size();
  const Tensor own = gradients.narrow(0, group_->rank() * count, count);
  wait(group_->reduce_scatter(gradients, own, ReduceOp::sum, "gradients of keys and values"));
  return own;
}

void ContextExchange::sum(const Tensor& values) const {
  wait(group_->all_reduce(values, ReduceOp::sum, "sums over sequences"));
}

}  // namespace quench::distributed
