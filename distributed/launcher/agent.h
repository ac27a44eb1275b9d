#pragma once
// The launcher of one node: starts its workers, watches them, and ends when they do.
//
// All workers of all nodes run, or none: the first that fails ends the others, with SIGTERM and, after the shutdown
// timeout, SIGKILL to each one's process group. Restarts start all of them again. SIGTERM, SIGINT, SIGHUP and SIGQUIT
// are passed on to the workers; a second one, a second or more later, kills them. Workers never outlive the launcher,
// however it ends.

#include <string>
#include <vector>

#include "distributed/launcher/launch_options.h"

namespace quench::distributed {

// Runs `command` in options.workers processes. Returns the exit status: 0 when all ended with 0, else that of the first
// failing worker (128 + signal for one that a signal ended), 128 + signal when a signal stopped the launcher. Throws
// Error where nothing could be started. `title` stands above the report of a failure.
[[nodiscard]] int launch(const LaunchOptions& options, const std::vector<std::string>& command,
                         const std::string& title);

}  // namespace quench::distributed
