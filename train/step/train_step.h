#pragma once
// One optimizer step: forward and backward over its micro-batches, gradient norm, clipping, update.

#include <span>

#include "data/sampling/loader.h"
#include "distributed/fsdp/sharded_model.h"
#include "distributed/ranks.h"
#include "nn/causal_lm.h"
#include "nn/experts/expert_load.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/state_offload.h"

namespace quench {

struct TrainStepOptions {
  autograd::Recompute recompute = autograd::Recompute::none;
  LmHeadLossOptions loss;
  autograd::ActivationPolicy activations;
  double state_offload_ratio = 0;  // of the optimizer's state that waits in host memory (nn/optim/state_offload.h)
  double max_norm = 1.0;           // 0: no clipping
  // Of a run of several processes; both null in a run of one. They outlive the step.
  distributed::ShardedModel* sharded = nullptr;
  const distributed::Ranks* ranks = nullptr;
  RouterTerms router_terms;  // of the loss, means over layers with experts and over the tokens of the step
};

// What the host must know before it lets the update happen.
struct GradientReport {
  double loss = 0;       // mean cross-entropy over the valid tokens of all micro-batches of all processes
  double grad_norm = 0;  // before clipping
  std::int64_t valid_tokens = 0;
};

class TrainStep {
 public:
  TrainStep(nn::CausalLm& model, nn::Optimizer& optimizer, TrainStepOptions options);

  // Leaves in the parameters the gradient of (sum of cross-entropies) / (valid tokens of all micro-batches): the mean
  // over tokens, however they are split into micro-batches. A step without any valid token has loss and gradient 0.
  // `step`, 1-based, counts the steps of the run: it keys the random draws of a recipe. Until apply() or discard(), a
  // part of the optimizer's state may be away, so that optimizer.state() is not to be called. With several processes
  // each gives its own micro-batches, as many as the others, and all get the same report.
  GradientReport accumulate(std::span<const Batch> micro_batches, std::int64_t step);
  // Clips and updates with the gradients of the last accumulate(). `step` is 1-based and counts updates.
  void apply(double lr, std::int64_t step);
  // Forgets the gradients of the last accumulate().
  void discard();

  // Where accumulate() says which experts the tokens went to, from now on; null: nowhere.
  void watch_experts(nn::ExpertLoad* load) noexcept { expert_load_ = load; }

  // Optimizer state that goes to host memory during accumulate().
  [[nodiscard]] std::int64_t offloaded_state_bytes() const noexcept { return state_ ? state_->bytes() : 0; }

 private:
  void make_report_buffers(std::int64_t micro_batches);
  // Of each micro-batch, over all processes.
  [[nodiscard]] std::vector<std::int64_t> valid_tokens(std::span<const Batch> micro_batches) const;
  // Forward and backward; the loss, f32 [1], stays on the device.
  void run_micro_batch(const Batch& batch, std::uint64_t pass, float scale, bool last, const nn::UnitHooks* hooks,
                       Tensor loss_out);

  nn::CausalLm& model_;
  nn::Optimizer& optimizer_;
  TrainStepOptions options_;
  std::unique_ptr<autograd::ActivationOffloader> offloader_;
  std::unique_ptr<nn::StateOffloader> state_;
  nn::ExpertLoad* expert_load_ = nullptr;
  Tensor squared_norm_;  // f64 [1]
  Tensor scale_;         // f32 [1]
  // f32 [micro-batches + 1]: the loss of each, then the gradient norm; on the device and where the host reads it.
  Tensor device_report_;
  Tensor host_report_;
};

// A context for a batch: its packed sequences, on the model's device.
[[nodiscard]] nn::ForwardContext batch_context(const nn::CausalLm& model, const Batch& batch);

}  // namespace quench
