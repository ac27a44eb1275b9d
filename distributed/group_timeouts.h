#pragma once
// How long ranks wait for each other: seconds in QUENCH_INIT_TIMEOUT (until all have met) and QUENCH_TIMEOUT (an
// operation of all). The environment says it, as it says who the ranks are: a cluster's own, not the run's.

#include "distributed/engine.h"
#include "distributed/environment.h"

namespace quench::distributed {

// Throws bad_config naming the variable where it holds no number of seconds from 1 to 1000000.
[[nodiscard]] GroupOptions read_group_options(const GetVariable& variable);
[[nodiscard]] GroupOptions read_group_options();

}  // namespace quench::distributed
