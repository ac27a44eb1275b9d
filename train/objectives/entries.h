#pragma once
// Entries of the objective table (train/config/objective_table.h), each defined in the folder of its name.

#include "train/config/objective_table.h"

namespace quench {

[[nodiscard]] ObjectiveEntry distillation_entry();
[[nodiscard]] ObjectiveEntry preference_entry();
[[nodiscard]] ObjectiveEntry mtp_entry();

}  // namespace quench
