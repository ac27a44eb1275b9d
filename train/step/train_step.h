#pragma once
// Optimizer step: passes over micro-batches, gradient norm, clipping, update.

#include <map>
#include <optional>
#include <span>
#include <utility>

#include "data/sampling/loader.h"
#include "distributed/fsdp/sharded_model.h"
#include "distributed/pipeline/stage_exchange.h"
#include "distributed/ranks.h"
#include "nn/decoder/causal_lm.h"
#include "nn/experts/expert_load.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/state_offload.h"
#include "nn/optim/state_stream.h"
#include "recipes/delayed_scaling.h"
#include "train/objective/objective.h"
#include "train/step/update_in_backward.h"

namespace quench {

// Memory, clipping and ranks of a TrainStep.
struct TrainStepOptions {
  autograd::Recompute recompute = autograd::Recompute::none;
  LmHeadLossOptions loss;
  autograd::ActivationPolicy activations;
  double state_offload_ratio = 0;  // share of optimizer state in host memory (nn/optim/state_offload.h)
  bool state_streamed = false;     // it stays there during the update (nn/optim/state_stream.h)
  double max_norm = 1.0;           // 0: no clipping
  // The last backward pass of an accumulate() with an update updates weights (train/step/update_in_backward.h): not
  // with clipping, state that is offloaded and not streamed, pipeline stages or slices of weights.
  bool update_in_backward = false;
  // `sharded` is null in a single process, `ranks` never. Must outlive the step.
  distributed::ShardedModel* sharded = nullptr;
  const distributed::Ranks* ranks = distributed::Ranks::single().get();
  // To other pipeline stages; null: one stage. Must outlive the step.
  distributed::StageExchange* stages = nullptr;

  RouterTerms router_terms;        // means over MoE layers and tokens of the step
  Objective* objective = nullptr;  // null: CrossEntropyObjective. Must outlive the step.
  recipes::DelayedScaling* scaling =
      nullptr;  // amax histories of the model's recipe; null: none. Must outlive the step.
};

// For the decision on the update.
struct GradientReport {
  double loss = 0;       // mean over the objective's units of all micro-batches and ranks
  double grad_norm = 0;  // before clipping
  std::int64_t valid_tokens = 0;
  std::int64_t units = 0;       // units of the objective
  std::vector<double> metrics;  // reported() values, in the order of Objective::metric_names(); empty without units
};

// Arguments of an apply().
struct StepUpdate {
  double lr = 0;
  std::int64_t number = 0;
};

class TrainStep {
 public:
  TrainStep(nn::CausalLm& model, nn::Optimizer& optimizer, TrainStepOptions options);

  // Gradients of (sum of losses) / (units of all micro-batches), independent of the split into micro-batches. Without
  // units, loss and gradient are 0. `step`: 1-based; keys a recipe's random draws.
  // Optimizer state may be offloaded until apply() or discard(): do not call optimizer.state(). Collective: equal
  // numbers of micro-batches per rank, the same report on all.
  // `update`: what apply() will be called with, for TrainStepOptions::update_in_backward, without which it has no
  // effect. Weights and state match no step from then on until apply(), and where that does not follow, for good.
  GradientReport accumulate(std::span<const Batch> micro_batches, std::int64_t step,
                            const std::optional<StepUpdate>& update = {});
  // Clips and applies the last gradients. `number`: 1-based update count.
  void apply(double lr, std::int64_t number);
  // Drops the last gradients; the recorded amax of delayed scaling stays, as in apply().
  void skip();
  // Drops all of the last accumulate().
  void discard();

  // Expert loads of later accumulate() calls; null: none.
  void watch_experts(nn::ExpertLoad* load) noexcept { expert_load_ = load; }

  // Host memory of offloaded activations.
  [[nodiscard]] std::int64_t offloaded_activation_bytes() const noexcept {
    return offloader_ ? offloader_->host_bytes() : 0;
  }
  // During accumulate(); with streamed state, always.
  [[nodiscard]] std::int64_t offloaded_state_bytes() const noexcept {
    return stream_ ? stream_->bytes() : state_ ? state_->bytes() : 0;
  }
  // Whether accumulate() frees state's device memory, which a save may still read.
  [[nodiscard]] bool frees_state_in_accumulate() const noexcept { return state_ != nullptr; }
  [[nodiscard]] bool updates_in_backward() const noexcept { return in_backward_ != nullptr; }
  // Call before the host reads or writes optimizer.state().
  void finish_state_copies() {
    if (stream_) stream_->finish_copies();
  }

 private:
  void make_report_buffers(std::int64_t micro_batches);
  void begin_updates(const std::optional<StepUpdate>& update);
  [[nodiscard]] std::int64_t amax_count() const { return options_.scaling ? options_.scaling->recorded().numel() : 0; }
  // Reduces the recorded amax over all ranks, and adds it to the report while an operand waits for one.
  void gather_amax();
  // Units and valid tokens of micro-batch i at 2i and 2i + 1, summed over ranks.
  [[nodiscard]] std::vector<std::int64_t> count_units(std::span<const Batch> micro_batches) const;
  // A micro-batch of a step.
  struct MicroBatch {
    const Batch* batch = nullptr;
    std::uint64_t pass = 0;            // key of random draws
    float scale = 0;                   // factor of its losses; 0: it has no units
    bool first = false, last = false;  // with units in the step
    Tensor out;                        // f32 [1 + metrics], on the device
  };
  // A forward pass whose backward pass has not run.
  struct Recorded {
    std::unique_ptr<ObjectiveInput> in;
    std::unique_ptr<autograd::Tape> tape;
    std::shared_ptr<autograd::Gradient> input;  // gradient of the hidden states before the chunk; null: none
    autograd::Variable output;                  // the loss, or hidden states without their value
  };
  // Passes of the micro-batches with units, in the order of this stage.
  void run_passes(std::span<const MicroBatch> micro_batches, nn::StateOffloader::Step& state);
  // `input`: hidden states before the chunk; undefined: none. Returns those after it, or an undefined tensor.
  [[nodiscard]] Tensor forward(const MicroBatch& of, std::size_t chunk, const Tensor& input, const nn::UnitHooks* hooks,
                               Recorded& pass);
  // `gradient`: of the hidden states after the chunk. Returns that of those before it, or an undefined tensor.
  [[nodiscard]] Tensor backward(const MicroBatch& of, std::size_t chunk, const Tensor& gradient, Recorded pass);
  // Sums of gradients of parameters that several stages hold.
  void sum_shared_table();

  nn::CausalLm& model_;
  nn::Optimizer& optimizer_;
  TrainStepOptions options_;
  std::unique_ptr<autograd::ActivationOffloader> offloader_;
  std::unique_ptr<nn::StateOffloader> state_;
  std::unique_ptr<nn::StateStream> stream_;
  std::unique_ptr<UpdateInBackward> in_backward_;  // null: one update after the pass
  nn::ExpertLoad* expert_load_ = nullptr;
  Tensor squared_norm_;  // f64 [1]
  Tensor scale_;         // f32 [1]
  CrossEntropyObjective cross_entropy_;
  Objective* objective_;
  std::unique_ptr<distributed::StageExchange> one_stage_;  // where options_.stages is null
  distributed::StageExchange* stages_;
  std::int64_t outputs_;  // values of a micro-batch: the loss and the metrics
  // f32 [micro-batches * outputs + 1 + amax_count()]: losses and metrics, the gradient norm, amax; on device and host.
  Tensor device_report_;
  Tensor host_report_;
};

// The rank's part of the sequences of its context group.
[[nodiscard]] inline SequencePart sequence_part(const distributed::Ranks& ranks) {
  return {ranks.rank / ranks.mesh.tensor % ranks.mesh.context, ranks.mesh.context};
}
// Rows of hidden states between the layers: this rank's on the tensor axis.
[[nodiscard]] inline std::int64_t hidden_rows(const Batch& batch, const distributed::Ranks& ranks) {
  return (batch.input_ids.numel() + ranks.mesh.tensor - 1) / ranks.mesh.tensor;
}
// Packed sequences on the model's device. A part of a batch attends over the whole one's keys, by the model's
// sequence_exchange(), which must be of as many ranks as the batch has parts. Throws invalid_argument otherwise.
[[nodiscard]] nn::ForwardContext batch_context(const nn::CausalLm& model, const Batch& batch);

}  // namespace quench
