#pragma once
// Timeouts from the environment, in seconds: QUENCH_INIT_TIMEOUT (all ranks have joined) and QUENCH_TIMEOUT (one
// operation). A property of the cluster, not of the run's config.

#include "distributed/engine.h"
#include "distributed/environment.h"

namespace quench::distributed {

// Throws bad_config naming the variable unless it is a number of seconds in 1..1000000.
[[nodiscard]] GroupOptions read_group_options(const GetVariable& variable);
[[nodiscard]] GroupOptions read_group_options();

}  // namespace quench::distributed
