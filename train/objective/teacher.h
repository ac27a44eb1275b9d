#pragma once
// Teacher of a distillation: hidden states and logits without gradients.

#include <memory>
#include <string>

#include "distributed/fsdp/sharded_model.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/lora/quantized_base.h"
#include "train/objective/objective.h"

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

// A second model, without gradients.
struct FrozenModel {
  FrozenModel() = default;
  FrozenModel(FrozenModel&&) = default;
  FrozenModel& operator=(FrozenModel&&) = delete;
  // Collective for a sharded model.
  ~FrozenModel() {
    if (sharded) sharded->end_gathers();
  }

  std::unique_ptr<nn::CausalLm> model;
  std::unique_ptr<recipes::QuantizedBase> base;        // of a quantized model; or null
  std::unique_ptr<nn::WeightOffloader> offloader;      // of weights in host memory; or null
  std::unique_ptr<distributed::ShardedModel> sharded;  // or null
};
[[nodiscard]] std::unique_ptr<Teacher> frozen_teacher(FrozenModel teacher);

}  // namespace quench
