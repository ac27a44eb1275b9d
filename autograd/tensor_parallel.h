#pragma once
// Differentiable functions of tensor parallelism with sequence parallelism (Shoeybi et al. 2019, arXiv:1909.08053;
// Korthikanti et al. 2022, arXiv:2205.05198): ranks of a group hold slices of the weights and, between
// them, equal consecutive parts of the tokens.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "autograd/variable.h"
#include "autograd/weight.h"
#include "core/ops/loss/lm_head_loss.h"

namespace quench::autograd {

// Tensor-parallel group (distributed/tensor/). Collective: all ranks make the same calls in the same order, with equal
// shapes.
class TensorExchange {
 public:
  virtual ~TensorExchange() = default;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual int rank() const = 0;

  // Result of an exchange that overlaps with the work queued after its start.
  class Pending {
   public:
    Pending(Tensor rows, std::function<void()> wait) : rows_(std::move(rows)), wait_(std::move(wait)) {}
    // Valid for work queued after the call; once.
    [[nodiscard]] Tensor get() {
      wait_();
      return std::move(rows_);
    }

   private:
    Tensor rows_;
    std::function<void()> wait_;
  };
  // [size() * N,W], the ranks' rows in rank order, of local rows [N,W]; contiguous.
  [[nodiscard]] virtual Pending begin_gather(const Tensor& rows) const = 0;
  // [N,W]: this rank's rows of the sum over ranks of contiguous `whole` [size() * N,W], summed in its dtype;
  // contiguous.
  [[nodiscard]] virtual Pending begin_reduce(const Tensor& whole) const = 0;
  [[nodiscard]] Tensor gather(const Tensor& rows) const { return begin_gather(rows).get(); }
  [[nodiscard]] Tensor reduce(const Tensor& whole) const { return begin_reduce(whole).get(); }
  // Whether rank 0 leads: share() tells the others what to compute (engine/pass_script.h). Else all ranks make the same
  // calls, and share() throws.
  [[nodiscard]] virtual bool is_led() const = 0;
  // Text of rank 0, whatever the others pass; blocks the host until it is there, however long rank 0 waits.
  [[nodiscard]] virtual std::string share(std::string text) const = 0;
  // After an error between the exchanges of a pass, which other ranks wait for: share() throws from now on.
  virtual void abandon() const noexcept = 0;
  // Rows of a rank for that many tokens; those of the last ranks beyond the tokens are zeros.
  [[nodiscard]] std::int64_t rows_of(std::int64_t tokens) const { return (tokens + size() - 1) / size(); }
};

class GatherAgain;

struct GatheredTokens {
  Variable rows;                       // [tokens,W]
  std::shared_ptr<GatherAgain> again;  // under selective recompute; else null
};

// x [tokens,W] of local rows [rows_of(tokens),W], before weights that are split by output features. The backward pass
// sums the ranks' gradients, next to the weights' gradients under selective recompute, which gathers x again.
// `exchange` must outlive it.
GatheredTokens gather_tokens(const Variable& x, std::int64_t tokens, const TensorExchange& exchange);
// Local rows [rows_of(tokens),W] of the sum over ranks of x [tokens,W], after weights that are split by input features.
// `again`, if not null: of the tokens that x was computed from, gathered during the backward pass of the functions
// between.
Variable scatter_sums(const Variable& x, const TensorExchange& exchange, std::shared_ptr<GatherAgain> again = nullptr);

// Local rows [rows_of(N),H] of the embedding of ids i32 [N]. table [V,H]: of tokens rank * V and on.
Variable embedding_of_parts(const Weight& table, const Tensor& ids, const TensorExchange& exchange);

// Cross-entropy of logits [n,V] of tokens rank * V and on: losses of the whole vocabulary, equal on all ranks, and this
// rank's part of the gradients. Labels count the whole vocabulary.
class CrossEntropyOfParts final : public LogitsLoss {
 public:
  explicit CrossEntropyOfParts(const TensorExchange& exchange) : exchange_(exchange) {}
  void run(const CrossEntropyArgs& chunk, std::int64_t first_row) override;

 private:
  const TensorExchange& exchange_;
};

}  // namespace quench::autograd
