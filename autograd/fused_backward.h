#pragma once
// Fused backward: an op offers its backward function to the sole producer of its output's gradient, whose kernel then
// computes both.

namespace quench::autograd {

// Base class of an op's offer: a derived class, declared by the op, holds the operands of the fused kernel. Owned by
// the op's record on the tape; attached by Gradient::set_fused_backward, found by Gradient::fused_backward<Derived>().
class FusedBackward {
 public:
  FusedBackward() = default;
  FusedBackward(const FusedBackward&) = delete;
  FusedBackward& operator=(const FusedBackward&) = delete;
  virtual ~FusedBackward() = default;

  // Provides the operands, if this pass allows fusion; false, without any effect, if not. After true the producer
  // computes the op's input gradient, and the op's record only passes it on.
  [[nodiscard]] virtual bool begin() = 0;
};

}  // namespace quench::autograd
