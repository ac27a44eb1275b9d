#pragma once
// Entries of the objective table (train/config/objective_table.h), each defined in the folder of its name.

#include "train/config/objective_table.h"

namespace quench {

[[nodiscard]] ObjectiveEntry distillation_entry();
[[nodiscard]] ObjectiveEntry preference_entry();
[[nodiscard]] ObjectiveEntry mtp_entry();
[[nodiscard]] ObjectiveEntry grpo_entry();

// Absent, at a null address, from programs that are linked without the folders run/: the fuzz targets.
[[gnu::weak]] extern const ObjectiveRuntime kDistillRuntime;
[[gnu::weak]] extern const ObjectiveRuntime kPreferenceRuntime;
[[gnu::weak]] extern const ObjectiveRuntime kMtpRuntime;
[[gnu::weak]] extern const ObjectiveRuntime kGrpoRuntime;

}  // namespace quench
