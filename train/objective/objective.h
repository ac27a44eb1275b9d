#pragma once
// Training objectives: the loss of a micro-batch, and named metrics.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "data/sampling/loader.h"
#include "nn/decoder/causal_lm.h"
#include "nn/decoder/weight_offload.h"

namespace quench {

// Micro-batch on the model's device.
struct ObjectiveInput {
  const Batch& batch;
  Tensor ids;                  // i32 [N], N = rows * length
  Tensor labels;               // i32 [N]
  nn::ForwardContext context;  // context of the recorded pass
};

// Text that an objective has sampled in a step.
struct SampledText {
  std::string prompt, text;  // valid UTF-8
  std::vector<std::int32_t> tokens;
  Json::Object figures;  // by name
};

// Bytes on the device that Objective::step_batches() takes and gives back, and those of models that it has made.
struct SamplingBytes {
  std::int64_t cache = 0;     // keys and values of sampled texts
  std::int64_t gathered = 0;  // whole weights in sharded runs, with buffers of the gather
  std::int64_t judge = 0;     // weights of a reward model, held from the first step on
};

class Objective {
 public:
  virtual ~Objective() = default;

  // In the order of loss(); constant.
  [[nodiscard]] virtual std::vector<std::string> metric_names() const { return {}; }
  // Batches of the 1-based `step` from those of the data, as samples of the model; no data in steps that reuse them
  // (ObjectiveEntry::steps_of_data). Before the step's units() and loss(), outside of any tape.
  [[nodiscard]] virtual std::vector<Batch> step_batches(std::vector<Batch> data, std::int64_t /*step*/) { return data; }
  // On the meta device, for estimates: allocates and frees what step_batches() does for `prompts` prompts of this rank.
  [[nodiscard]] virtual SamplingBytes plan_batches(std::int64_t /*prompts*/) { return {}; }
  // Whether the last error of step_batches() was thrown on all ranks.
  [[nodiscard]] virtual bool failed_together() const noexcept { return false; }
  // Texts of the last step_batches(), for the records of the run.
  [[nodiscard]] virtual std::vector<SampledText> sampled_texts() const { return {}; }
  // What the step after the 1-based `step` reads besides weights and data, for a checkpoint; empty: nothing.
  // Collective.
  [[nodiscard]] virtual std::string state(std::int64_t /*step*/) const { return {}; }
  // Inverse, before a further step_batches(); empty: none is stored. Throws corrupt.
  virtual void restore(std::string_view /*state*/) {}
  // A step's loss and metrics are means over the units of all micro-batches and ranks. Micro-batches without units on
  // any rank are skipped.
  [[nodiscard]] virtual std::int64_t units(const Batch& batch) const { return batch.valid_tokens; }
  // Passes without a tape before loss(), e.g. of a teacher. `in.context` has no hooks of the recorded pass. Collective
  // for sharded models.
  virtual void prepare(const ObjectiveInput& /*in*/) {}
  // f32 [1], root of the backward pass of the current tape: `scale` times the sum of losses. `metrics`: f32
  // [metric_names().size()], out, sums times `scale`; undefined without metrics.
  [[nodiscard]] virtual autograd::Variable loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                                const Tensor& metrics) = 0;
  // Offloader of a second model; null: no weights in host memory.
  [[nodiscard]] virtual const nn::WeightOffloader* weight_offloader() const noexcept { return nullptr; }
  // Metrics to report, from their means over units; NaN: none.
  [[nodiscard]] virtual std::vector<double> reported(std::vector<double> means) const { return means; }
};

// Next-token cross-entropy, in units of valid tokens; no logits of rows without a label where many have none. `model`
// must outlive it.
class CrossEntropyObjective final : public Objective {
 public:
  explicit CrossEntropyObjective(const nn::CausalLm& model) : model_(model) {}
  [[nodiscard]] autograd::Variable loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                        const Tensor& metrics) override;

 private:
  const nn::CausalLm& model_;
};

}  // namespace quench
