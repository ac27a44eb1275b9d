#pragma once
// Exchange between ranks that compute parts of the same sequences: keys and values for attention, and sums.

#include "core/tensor/tensor.h"

namespace quench::autograd {

// Context-parallel group (distributed/context/). Collective: all ranks make the same calls in the same order, with
// equal shapes.
class SequenceExchange {
 public:
  virtual ~SequenceExchange() = default;
  [[nodiscard]] virtual int size() const = 0;
  // [size() * N,W], the ranks' rows in rank order, of local rows [N,W] with contiguous columns.
  [[nodiscard]] virtual Tensor gather(const Tensor& rows) const = 0;
  // Transpose of gather(): the sum over ranks of this rank's rows [N,W] of contiguous `gradients` [size() * N,W], which
  // are overwritten; may be a view of them.
  [[nodiscard]] virtual Tensor reduce(const Tensor& gradients) const = 0;
  // Sum over the ranks, in place; contiguous f32 or f64.
  virtual void sum(const Tensor& values) const = 0;
};

}  // namespace quench::autograd
