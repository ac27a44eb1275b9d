#pragma once
// Differentiable all-to-all of token rows, for expert parallelism. The experts of every rank form groups with an
// exchange of their own, so that the experts of one group compute while rows of others are in flight.

#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/functions_moe.h"

namespace quench::autograd {

// Rows of one group of every rank's experts. This rank's rows are sorted by expert.
struct GroupRowCounts {
  std::vector<std::int64_t> sent, first;  // sent[j] rows, from row first[j], are of experts of rank j
  std::vector<std::int64_t> received;     // received[j] rows come from rank j, in rank order

  [[nodiscard]] std::int64_t sent_rows() const;
  [[nodiscard]] std::int64_t received_rows() const;
};

// Activations or gradients, and a value of each row.
struct TokenRows {
  Tensor rows;    // [N,W], or undefined: values alone
  Tensor values;  // f32 [N,1], or undefined
};

// Expert-parallel group (distributed/experts/). Collective: all ranks make the same calls in the same order.
class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;
  [[nodiscard]] virtual int size() const = 0;
  // Wanted number of groups of a rank's experts.
  [[nodiscard]] virtual std::int64_t groups() const = 0;
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

  // Rows in flight to the ranks of their experts.
  class Dispatch {
   public:
    virtual ~Dispatch() = default;
    // Rows of the group's local experts; the current stream waits for them. Called once for a group.
    [[nodiscard]] virtual TokenRows wait(std::size_t group) = 0;
  };
  enum class Order { first_to_last, last_to_first };
  // Starts the exchanges of all groups. `rows`: of all experts; activations may be sent in lower precision, values are
  // not.
  [[nodiscard]] virtual std::unique_ptr<Dispatch> dispatch(const TokenRows& rows,
                                                           std::span<const GroupRowCounts> groups, Order order,
                                                           std::string_view label) const = 0;

  // Rows in flight back to the ranks that sent them.
  class Combine {
   public:
    virtual ~Combine() = default;
    // Starts the exchange of a group; `rows`: of its local experts. Called once for a group.
    virtual void start(std::size_t group, const TokenRows& rows) = 0;
    // Rows of all experts; the current stream waits for them. Called once, after start() of all groups.
    [[nodiscard]] virtual TokenRows wait() = 0;
  };
  // `groups` must outlive the result.
  [[nodiscard]] virtual std::unique_ptr<Combine> combine(std::span<const GroupRowCounts> groups,
                                                         std::string_view label) const = 0;
};

// Dispatch of x [N,W] with router weights f32 [N,1]. In the backward pass wait(g) starts the exchange of the group's
// gradients; x's gradient waits for all. `dispatcher` must outlive the backward pass.
class RowDispatch {
 public:
  RowDispatch(const Variable& x, const Variable& weights, const TokenDispatcher& dispatcher,
              std::vector<GroupRowCounts> groups);
  struct Group {
    Variable rows, weights;
    // In the backward pass runs after the exchange of the group's gradients has started; null: there is none.
    std::shared_ptr<LateWork> late;
  };
  // Rows and router weights of a group; groups in order.
  [[nodiscard]] Group wait(std::size_t group);

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::vector<Variable> in_flight_;  // by group; values are not read
};

// Combine of the rows of all groups. In the backward pass wait() starts the exchanges of all groups' gradients.
class RowCombine {
 public:
  RowCombine(const TokenDispatcher& dispatcher, std::vector<GroupRowCounts> groups);
  // Groups in order.
  void start(std::size_t group, const Variable& y);
  // [N,W]
  [[nodiscard]] Variable wait();

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::vector<Variable> in_flight_;
};

}  // namespace quench::autograd
