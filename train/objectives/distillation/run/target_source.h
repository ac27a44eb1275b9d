#pragma once
// TargetSource: where the distributions of a distillation come from, a teacher that runs next to the student, or
// stored targets.

#include <cstdint>
#include <memory>

#include "core/ops/loss/distillation_loss.h"
#include "core/ops/loss/lm_head_loss.h"
#include "train/objective/objective.h"
#include "train/objectives/distillation/run/hidden_states.h"
#include "train/objectives/distillation/run/stored_targets.h"
#include "train/objectives/distillation/run/teacher.h"

namespace quench {

// Distributions of one micro-batch.
class TargetRows {
 public:
  virtual ~TargetRows() = default;
  // For the rows of `chunk`, the first of which is `first_row` of the micro-batch. Valid until the next call.
  [[nodiscard]] virtual DivergenceTarget of(const CrossEntropyArgs& chunk, std::int64_t first_row) = 0;
};

class TargetSource {
 public:
  virtual ~TargetSource() = default;
  // Before the student's forward pass. `states`: filled with hidden states of the teacher; or null.
  virtual void prepare(const ObjectiveInput& in, TeacherStates* states) = 0;
  // Rows of the prepared micro-batch, once.
  [[nodiscard]] virtual std::unique_ptr<TargetRows> take_rows() = 0;
  // As Objective::weight_offloader().
  [[nodiscard]] virtual const nn::WeightOffloader* offloader() const noexcept { return nullptr; }
};

// Logits of a teacher, made by chunks of rows.
[[nodiscard]] std::unique_ptr<TargetSource> live_targets(std::unique_ptr<Teacher> teacher);

struct TargetsOfRun {
  std::shared_ptr<const StoredTargets> targets;
  std::shared_ptr<const Dataset> data;  // dataset of the batches
};

// The K most probable tokens, without the teacher. Members of `run` are null in an estimate. `k`: tokens of a target.
[[nodiscard]] std::unique_ptr<TargetSource> stored_targets(TargetsOfRun run, std::int64_t k);

}  // namespace quench
