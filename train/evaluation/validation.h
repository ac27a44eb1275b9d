#pragma once
// Validation: loss and metrics of a model over a data set, without gradients.

#include <memory>

#include "data/sampling/dataset.h"
#include "distributed/pipeline/stage_exchange.h"
#include "distributed/ranks.h"
#include "nn/decoder/causal_lm.h"
#include "train/metrics/step_metrics.h"
#include "train/objective/objective.h"

namespace quench {

struct ValidationOptions {
  std::int64_t micro_batch_size = 1;
  std::int64_t batches = 0;  // leading ones; 0: all
  std::int64_t loss_chunk_rows = 0;
  // Batches are split over them, all get the result. Not null.
  const distributed::Ranks* ranks = distributed::Ranks::single().get();
  // To other pipeline stages; null: the model is whole.
  distributed::StageExchange* stages = nullptr;
  Objective* objective = nullptr;  // not null: its loss and metrics. Whole models
};

// Mean cross-entropy over valid tokens, and its exponential; with an objective, mean loss and metrics over its units.
// Does not modify the model.
[[nodiscard]] EvaluationMetrics validate(const nn::CausalLm& model, std::shared_ptr<const Dataset> data,
                                         const ValidationOptions& options);

}  // namespace quench
