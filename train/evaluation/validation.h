#pragma once
// Validation loss of the model as it is.

#include <memory>

#include "data/sampling/dataset.h"
#include "distributed/ranks.h"
#include "nn/causal_lm.h"
#include "train/metrics/step_metrics.h"

namespace quench {

struct ValidationOptions {
  std::int64_t micro_batch_size = 1;
  std::int64_t batches = 0;  // from the start of the set, always the same; 0: all of it
  std::int64_t loss_chunk_rows = 0;
  const distributed::Ranks* ranks = nullptr;  // not null: they share out the batches, and all get the result
};

// Mean cross-entropy over all valid tokens, and its exponential. Changes nothing in the model.
[[nodiscard]] EvaluationMetrics validate(const nn::CausalLm& model, std::shared_ptr<const Dataset> data,
                                         const ValidationOptions& options);

}  // namespace quench
