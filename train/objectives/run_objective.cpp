#include "train/objectives/run_objective.h"

namespace quench {

const ObjectiveRuntime& objective_runtime(const RunConfig& config) {
  static const ObjectiveRuntime kNone{};
  const ObjectiveRuntime* runtime = objective_of(config).runtime;
  return runtime == nullptr ? kNone : *runtime;
}

std::unique_ptr<RunObjective> make_objective(const ObjectiveSession& session) {
  const ObjectiveRuntime& runtime = objective_runtime(session.config);
  return runtime.make == nullptr ? std::make_unique<RunObjective>() : runtime.make(session);
}

}  // namespace quench
