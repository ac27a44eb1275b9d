#pragma once
// All-to-all token dispatch and combine (autograd/token_dispatcher.h).

#include <memory>
#include <optional>

#include "autograd/token_dispatcher.h"
#include "distributed/fsdp/exposed_comm_timer.h"
#include "distributed/process_group.h"

namespace quench::distributed {

class ExpertParallelDispatcher final : public autograd::TokenDispatcher {
 public:
  // `mxfp8`: activations and gradients are sent as MXFP8 (e4m3, one E8M0 scale per 32 elements of a row), about half
  // the bytes of bf16. Row widths must be multiples of 32.
  ExpertParallelDispatcher(std::shared_ptr<ProcessGroup> group, std::int64_t groups, bool mxfp8,
                           std::shared_ptr<ExposedCommTimer> clock);
  ~ExpertParallelDispatcher() override;

  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] std::unique_ptr<CountExchange> exchange_counts(const Tensor& counts, std::int64_t pairs) const override;
  [[nodiscard]] std::int64_t groups() const override { return groups_; }
  [[nodiscard]] std::unique_ptr<Dispatch> dispatch(const autograd::TokenRows& rows,
                                                   std::span<const autograd::GroupRowCounts> groups, Order order,
                                                   std::string_view label) const override;
  [[nodiscard]] std::unique_ptr<Combine> combine(std::span<const autograd::GroupRowCounts> groups,
                                                 std::string_view label) const override;

 private:
  class CountsInFlight;
  class DispatchInFlight;
  class CombineInFlight;
  // Tensors of rows as they are sent.
  struct SentRows;

  [[nodiscard]] SentRows as_sent(const autograd::TokenRows& rows) const;
  [[nodiscard]] static autograd::TokenRows as_received(const SentRows& received);
  // One all-to-all of each tensor, together; added to `works`. `dispatches`: from a rank's own rows to the experts.
  void start(const SentRows& from, const SentRows& to, const autograd::GroupRowCounts& counts, bool dispatches,
             std::string_view label, std::vector<Work>& works) const;

  std::shared_ptr<ProcessGroup> group_;
  std::int64_t groups_;
  bool mxfp8_;
  std::shared_ptr<ExposedCommTimer> clock_;
  std::optional<Stream> counts_stream_;  // GPU: copies of counts to the host
};

}  // namespace quench::distributed
