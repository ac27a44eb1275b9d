#pragma once
// Runtime of multi-token prediction, absent from programs that train no runs.

#include "train/config/objective_table.h"

namespace quench {

[[gnu::weak]] extern const ObjectiveRuntime kMtpRuntime;

}  // namespace quench
