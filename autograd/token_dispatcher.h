#pragma once
// Differentiable all-to-all of token rows, for expert parallelism.

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/tape.h"

namespace quench::autograd {

// The first sent[0] rows go to rank 0, the next sent[1] to rank 1, ...; received[j] rows come from rank j, in rank
// order.
struct RowCounts {
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received;

  [[nodiscard]] std::int64_t sent_rows() const;
  [[nodiscard]] std::int64_t received_rows() const;
  [[nodiscard]] RowCounts reversed() const { return {received, sent}; }
};

// Expert-parallel group (distributed/experts/). Collective: all ranks make the same calls in the same order.
class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;
  [[nodiscard]] virtual int size() const = 0;
  // All-to-all of pair counts f32 [E] in flight; rank i owns experts from i * E / size().
  class CountExchange {
   public:
    virtual ~CountExchange() = default;
    // [size(), E / size()]: each rank's counts for the local experts; `own`: this rank's counts. Blocks the host until
    // they have arrived; the current stream waits too. Called once.
    [[nodiscard]] virtual std::vector<std::int64_t> wait(std::vector<std::int64_t>& own) = 0;
  };
  // Ordered after the work queued on the current stream. `pairs`: sum of `counts`, for plans without values.
  [[nodiscard]] virtual std::unique_ptr<CountExchange> exchange_counts(const Tensor& counts,
                                                                       std::int64_t pairs) const = 0;
  // [counts.received_rows(),W] from activations [counts.sent_rows(),W], which may be sent in lower precision.
  [[nodiscard]] virtual Tensor move(const Tensor& rows, const RowCounts& counts, std::string_view label) const = 0;
  // As move(), with a value f32 [counts.sent_rows(),1] of each row, unrounded, in one exchange. Either may be
  // undefined.
  [[nodiscard]] virtual std::pair<Tensor, Tensor> move_with_values(const Tensor& rows, const Tensor& values,
                                                                   const RowCounts& counts,
                                                                   std::string_view label) const = 0;
};

// All-to-all of rows: [received,W] from x [sent,W]; the backward pass reverses it. `dispatcher` must outlive the
// backward pass.
Variable all_to_all_rows(const Variable& x, const TokenDispatcher& dispatcher, const RowCounts& counts,
                         std::string_view label);
// x and router weights f32 [sent,1] in one exchange; the backward pass moves the wanted gradients alone.
std::pair<Variable, Variable> all_to_all_weighted_rows(const Variable& x, const Variable& weights,
                                                       const TokenDispatcher& dispatcher, const RowCounts& counts,
                                                       std::string_view label);

}  // namespace quench::autograd
