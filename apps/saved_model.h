#pragma once
// Summary of a written model.

#include "train/model/save_target.h"

namespace quench {

// To stdout, as text or JSON.
void print_saved_model(const SavedModel& saved, bool json);

// Option of a member of SaveTarget: SaveTarget::key of verbs.
[[nodiscard]] std::string option_of(std::string_view member);

}  // namespace quench
