#include "train/session/run_objective.h"

#include "train/session/run_session.h"

namespace quench {

const ObjectiveRuntime& objective_runtime(const RunConfig& config) {
  static const ObjectiveRuntime kNone{};
  const ObjectiveRuntime* runtime = objective_of(config).runtime;
  return runtime == nullptr ? kNone : *runtime;
}

void arrange_pairs(const RunConfig& config, Batch& batch) {
  if (config.data.seq_len < 2) return;
  std::vector<SequenceRange> answers;
  for (const SequenceRange& row : batch.sequences) {
    const std::int64_t half = row.q_length / 2, middle = row.q_begin + half, rest = row.q_length - half;
    batch.pairs.push_back({.sequence = answers.size()});
    answers.push_back({row.q_begin, half, row.q_begin, half});
    answers.push_back({middle, rest, middle, rest});
  }
  batch.sequences = std::move(answers);
}

std::unique_ptr<RunObjective> make_objective(const RunSession& session, const ObjectiveInputs* inputs) {
  const ObjectiveRuntime& runtime = objective_runtime(session.config());
  return runtime.make == nullptr ? std::make_unique<RunObjective>() : runtime.make(session, inputs);
}

}  // namespace quench
