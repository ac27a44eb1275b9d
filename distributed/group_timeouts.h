#pragma once
// Timeouts in seconds: QUENCH_INIT_TIMEOUT (all ranks have joined), QUENCH_TIMEOUT (one operation). Environment
// variables: a property of the cluster, not of the run's config.

#include "distributed/engine.h"
#include "distributed/environment.h"

namespace quench::distributed {

// Throws bad_config outside 1..1000000.
[[nodiscard]] GroupOptions read_group_options(const GetVariable& variable);
[[nodiscard]] GroupOptions read_group_options();

}  // namespace quench::distributed
