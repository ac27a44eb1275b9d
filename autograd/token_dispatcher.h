#pragma once
// Differentiable all-to-all of token rows, for expert parallelism.

#include <span>
#include <string_view>
#include <vector>

#include "autograd/tape.h"

namespace quench::autograd {

// What one exchange moves: the first sent[0] rows go to process 0, the next sent[1] to process 1, ...; received[j] rows
// come from process j and stand in the order of the processes.
struct RowCounts {
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received;

  [[nodiscard]] std::int64_t sent_rows() const;
  [[nodiscard]] std::int64_t received_rows() const;
  // Of the way back.
  [[nodiscard]] RowCounts reversed() const { return {received, sent}; }
};

// The processes that share out the experts of a model, as one of them sees them (distributed/experts/). All of them
// make the same calls in the same order.
class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;
  [[nodiscard]] virtual int size() const = 0;
  // Every process's counts for this one: [size(), E / size()] on the host, of counts f32 [E] of this process's pairs by
  // expert, of which process i has those from i * E / size() on. `own` receives `counts` on the host. The host waits
  // for the device: it has to know how much to ask for. `pairs`: their number, for plans without values.
  [[nodiscard]] virtual std::vector<std::int64_t> exchange_counts(const Tensor& counts, std::int64_t pairs,
                                                                  std::vector<std::int64_t>& own) const = 0;
  // [counts.received_rows(),W] of rows [counts.sent_rows(),W]. Activations may be rounded on their way.
  [[nodiscard]] virtual Tensor move(const Tensor& rows, const RowCounts& counts, bool activations,
                                    std::string_view label) const = 0;
};

// The rows that come from all processes: [received,W] of x [sent,W]; the gradient goes the way back. `activations`: as
// in TokenDispatcher::move. `dispatcher` outlives the backward pass.
Variable all_to_all_rows(const Variable& x, const TokenDispatcher& dispatcher, const RowCounts& counts,
                         bool activations, std::string_view label);

}  // namespace quench::autograd
