#pragma once
// Optimizer updates inside the backward pass (LOMO, Lv et al. 2023, arXiv:2306.09782): weights of a layer are updated
// and their gradients freed as soon as these are complete, so that gradients of all layers never exist at once.

#include <functional>
#include <map>
#include <vector>

#include "distributed/fsdp/sharded_model.h"
#include "nn/decoder/causal_lm.h"
#include "nn/optim/optimizer.h"

namespace quench {

// Parts of a model: its decoder layers, and next to them the embedding and the head. Those whose gradients are complete
// before the pass ends are updated in it, layers from the last to the first; without FSDP the embedding is not.
// Weights have the same bits as after one update without clipping. A part whose gradient is not finite stays as it was.
class UpdateInBackward {
 public:
  // Updates `part` with gradients multiplied by `scale` (Optimizer::step) and frees these; `next`: the range of the
  // next call, as far as is known; empty: none.
  using Update = std::function<void(nn::ParameterRange part, nn::ParameterRange next, const Tensor& scale)>;

  // `sharded`: null in a single process. All outlive this object.
  UpdateInBackward(nn::CausalLm& model, nn::Optimizer& optimizer, distributed::ShardedModel* sharded);
  ~UpdateInBackward();
  UpdateInBackward(const UpdateInBackward&) = delete;
  UpdateInBackward& operator=(const UpdateInBackward&) = delete;

  // Updates in the last backward pass from now on, until end(). Null: none.
  void begin(Update update);
  void end() noexcept { update_ = nullptr; }
  // For the forward pass before that backward pass; with FSDP they do nothing.
  [[nodiscard]] const nn::UnitHooks* hooks() const noexcept { return &hooks_; }

  // f32: norms of this process's gradients that were used and freed since begin(); 0: of others.
  [[nodiscard]] const Tensor& norms() const noexcept { return norms_; }
  // Ranges that were not updated since begin().
  [[nodiscard]] std::vector<nn::ParameterRange> left() const;

 private:
  struct Part {
    nn::ParameterRange range;
    bool updated = false;
  };
  using Parts = std::vector<std::size_t>;  // indices in parts_

  void update(const Parts& parts);

  nn::Optimizer& optimizer_;
  distributed::ShardedModel* sharded_;
  std::vector<Part> parts_;                        // neighbouring trained parameters of a unit, in model order
  std::map<const nn::Parameter*, Parts> of_unit_;  // by the unit's first parameter
  std::vector<Parts> of_layer_;
  Parts of_head_;  // complete when the backward pass reaches the layers
  nn::UnitHooks hooks_;
  Update update_;
  Tensor norms_;         // f32 [parts]
  Tensor squared_norm_;  // f64 [1]
  Tensor scale_;         // f32 [1]
};

}  // namespace quench
