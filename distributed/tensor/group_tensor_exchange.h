#pragma once
// Exchange of token rows by all-gather and reduce-scatter in a process group (autograd/tensor_parallel.h).

#include <memory>
#include <string>

#include "autograd/tensor_parallel.h"
#include "distributed/exposed_comm_timer.h"
#include "distributed/process_group.h"

namespace quench::distributed {

// Waits count as exposed communication of `clock`. Sums are those of ProcessGroup::reduce_scatter. `texts`: CPU group
// of the same ranks for share() alone; its timeout becomes that of no limit. Null: rank 0
// does not lead.
class GroupTensorExchange final : public autograd::TensorExchange {
 public:
  GroupTensorExchange(std::shared_ptr<ProcessGroup> group, std::shared_ptr<ExposedCommTimer> clock,
                      std::shared_ptr<ProcessGroup> texts = nullptr);

  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] int rank() const override { return group_->rank(); }
  [[nodiscard]] Pending begin_gather(const Tensor& rows) const override;
  [[nodiscard]] Pending begin_reduce(const Tensor& whole) const override;
  [[nodiscard]] bool is_led() const override { return texts_ != nullptr; }
  [[nodiscard]] std::string share(std::string text) const override;
  void abandon() const noexcept override { abandoned_ = true; }

 private:
  [[nodiscard]] Pending pending(Tensor rows, Work work) const;

  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<ExposedCommTimer> clock_;
  std::shared_ptr<ProcessGroup> texts_;
  mutable bool abandoned_ = false;
};

}  // namespace quench::distributed
