#pragma once
// Exchange of keys and values by all-gather and reduce-scatter in a process group (autograd/sequence_exchange.h).

#include <memory>

#include "autograd/sequence_exchange.h"
#include "distributed/exposed_comm_timer.h"
#include "distributed/process_group.h"

namespace quench::distributed {

// Waits count as exposed communication of `clock`. Gradients are summed in their dtype (ProcessGroup::reduce_scatter).
class ContextExchange final : public autograd::SequenceExchange {
 public:
  ContextExchange(std::shared_ptr<ProcessGroup> group, std::shared_ptr<ExposedCommTimer> clock)
      : group_(std::move(group)), clock_(std::move(clock)) {}

  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] Tensor gather(const Tensor& rows) const override;
  [[nodiscard]] Tensor reduce(const Tensor& gradients) const override;
  void sum(const Tensor& values) const override;

 private:
  void wait(Work work) const;

  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<ExposedCommTimer> clock_;
};

}  // namespace quench::distributed
