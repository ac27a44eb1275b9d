#pragma once
// All-to-all token dispatch and combine (autograd/token_dispatcher.h).

#include <memory>
#include <optional>

#include "autograd/token_dispatcher.h"
#include "distributed/exposed_comm_timer.h"
#include "distributed/process_group.h"

namespace quench::distributed {

class ExpertParallelDispatcher final : public autograd::TokenDispatcher {
 public:
  // `mxfp8`: activations and gradients are sent as MXFP8 (e4m3, one E8M0 scale per 32 elements of a row), about half
  // the bytes of bf16. Row widths must be multiples of 32.
  ExpertParallelDispatcher(std::shared_ptr<ProcessGroup> group, bool mxfp8, std::shared_ptr<ExposedCommTimer> clock);
  ~ExpertParallelDispatcher() override;

  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] std::unique_ptr<CountExchange> exchange_counts(const Tensor& counts, std::int64_t pairs) const override;
  [[nodiscard]] Tensor move(const Tensor& rows, const autograd::RowCounts& counts,
                            std::string_view label) const override;
  [[nodiscard]] std::pair<Tensor, Tensor> move_with_values(const Tensor& rows, const Tensor& values,
                                                           const autograd::RowCounts& counts,
                                                           std::string_view label) const override;

 private:
  class CountsInFlight;

  [[nodiscard]] std::pair<Tensor, Tensor> exchange(const Tensor& rows, const Tensor& values,
                                                   const autograd::RowCounts& counts, std::string_view label) const;
  // Output of an all-to-all that is added to `works`.
  [[nodiscard]] Tensor start(const Tensor& rows, const autograd::RowCounts& counts, std::string_view label,
                             std::vector<Work>& works) const;

  std::shared_ptr<ProcessGroup> group_;
  bool mxfp8_;
  std::shared_ptr<ExposedCommTimer> clock_;
  std::optional<Stream> counts_stream_;  // GPU: copies of counts to the host
};

}  // namespace quench::distributed
