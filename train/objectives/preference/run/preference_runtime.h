#pragma once
// Runtime of preference training, absent from programs that train no runs.

#include "train/config/objective_table.h"

namespace quench {

[[gnu::weak]] extern const ObjectiveRuntime kPreferenceRuntime;

}  // namespace quench
