#pragma once
// All-to-all token dispatch and combine (autograd/token_dispatcher.h).

#include <memory>

#include "autograd/token_dispatcher.h"
#include "distributed/fsdp/exposed_comm_timer.h"
#include "distributed/process_group.h"

namespace quench::distributed {

class ExpertParallelDispatcher final : public autograd::TokenDispatcher {
 public:
  // `mxfp8`: activations and gradients are sent as MXFP8 (e4m3, one E8M0 scale per 32 elements of a row), about half
  // the bytes of bf16. Row widths must be multiples of 32.
  ExpertParallelDispatcher(std::shared_ptr<ProcessGroup> group, bool mxfp8, std::shared_ptr<ExposedCommTimer> clock);

  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] std::vector<std::int64_t> exchange_counts(const Tensor& counts, std::int64_t pairs,
                                                          std::vector<std::int64_t>& own) const override;
  [[nodiscard]] Tensor move(const Tensor& rows, const autograd::RowCounts& counts, bool activations,
                            std::string_view label) const override;

 private:
  [[nodiscard]] Tensor all_to_all(const Tensor& rows, const autograd::RowCounts& counts, std::string_view label) const;

  std::shared_ptr<ProcessGroup> group_;
  bool mxfp8_;
  std::shared_ptr<ExposedCommTimer> clock_;
};

}  // namespace quench::distributed
