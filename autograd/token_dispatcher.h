#pragma once
// Differentiable all-to-all of token rows, for expert parallelism.

#include <span>
#include <string_view>
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
  // All-to-all of pair counts f32 [E]; rank i owns experts from i * E / size(). Returns [size(), E / size()] on the
  // host: each rank's counts for the local experts; `own`: `counts` on the host. Synchronises. `pairs`: their number,
  // for plans without values.
  [[nodiscard]] virtual std::vector<std::int64_t> exchange_counts(const Tensor& counts, std::int64_t pairs,
                                                                  std::vector<std::int64_t>& own) const = 0;
  // [counts.received_rows(),W] from rows [counts.sent_rows(),W]. Activations may be sent in lower precision.
  [[nodiscard]] virtual Tensor move(const Tensor& rows, const RowCounts& counts, bool activations,
                                    std::string_view label) const = 0;
};

// All-to-all of rows: [received,W] from x [sent,W]; the backward pass reverses it. `dispatcher` must outlive the
// backward pass.
Variable all_to_all_rows(const Variable& x, const TokenDispatcher& dispatcher, const RowCounts& counts,
                         bool activations, std::string_view label);

}  // namespace quench::autograd
