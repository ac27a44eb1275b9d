#pragma once

#include "train/check/checker.h"

namespace quench {

// Keys of section distill that have no effect, and a teacher or targets that cannot be used.
void check_distill(Checker& checker);

}  // namespace quench
