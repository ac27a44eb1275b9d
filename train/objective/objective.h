#pragma once
// Training objectives: the loss of a micro-batch, and named metrics.

#include <cstdint>
#include <string>
#include <vector>

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

class Objective {
 public:
  virtual ~Objective() = default;

  // In the order of loss(); constant.
  [[nodiscard]] virtual std::vector<std::string> metric_names() const { return {}; }
  // Batches of the 1-based `step` from those of the data, as samples of the model. Once before the step's units() and
  // loss(), outside of any tape.
  [[nodiscard]] virtual std::vector<Batch> step_batches(std::vector<Batch> data, std::int64_t /*step*/) { return data; }
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
