#pragma once

#include "train/check/checker.h"

namespace quench {

// Keys of section preference that have no effect, and a reference that cannot be one.
void check_preference(Checker& checker);

}  // namespace quench
