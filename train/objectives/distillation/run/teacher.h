#pragma once
// Teacher of a distillation: hidden states and logits without gradients.

#include <memory>
#include <string>

#include "nn/decoder/causal_lm.h"
#include "train/objective/objective.h"
#include "train/session/frozen_model.h"

namespace quench {

class Teacher {
 public:
  virtual ~Teacher() = default;
  // Final hidden states [N,H]. `outputs`, if not null: receives those of layers. Collective for sharded models.
  [[nodiscard]] virtual Tensor hidden(const ObjectiveInput& in, nn::LayerOutputs* outputs) = 0;

  // Head of one loss; holds its weight.
  class Head {
   public:
    virtual ~Head() = default;
    // out [n,V] of hidden states [n,H]; f32 or dtype of hidden.
    virtual void logits(const Tensor& hidden, const Tensor& out) = 0;
  };
  [[nodiscard]] virtual std::unique_ptr<Head> head() = 0;
  // Null: no weights in host memory.
  [[nodiscard]] virtual const nn::WeightOffloader* offloader() const noexcept { return nullptr; }
};

// The student's own base weights, without adapters and fake quantization (recipes/base_kernels.h). `student` must
// outlive it.
[[nodiscard]] std::unique_ptr<Teacher> base_teacher(nn::CausalLm& student);

[[nodiscard]] std::unique_ptr<Teacher> frozen_teacher(FrozenModel teacher);

}  // namespace quench
