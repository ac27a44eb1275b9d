#pragma once

#include <memory>

#include "data/sampling/dataset.h"
#include "distributed/ranks.h"
#include "nn/causal_lm.h"
#include "train/metrics/step_metrics.h"

namespace quench {

struct ValidationOptions {
  std::int64_t micro_batch_size = 1;
  std::int64_t batches = 0;  // leading ones; 0: all
  std::int64_t loss_chunk_rows = 0;
  const distributed::Ranks* ranks = nullptr;  // not null: batches are split over ranks, all get the result
};

// Mean cross-entropy over valid tokens, and its exponential. Does not modify the model.
[[nodiscard]] EvaluationMetrics validate(const nn::CausalLm& model, std::shared_ptr<const Dataset> data,
                                         const ValidationOptions& options);

}  // namespace quench
