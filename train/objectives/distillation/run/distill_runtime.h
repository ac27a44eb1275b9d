#pragma once
// Runtime of distillation, absent from programs that train no runs.

#include "train/config/objective_table.h"

namespace quench {

[[gnu::weak]] extern const ObjectiveRuntime kDistillRuntime;

}  // namespace quench
