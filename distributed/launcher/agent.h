#pragma once
// Launcher of one node: starts, watches and reaps its workers.
//
// All workers of all nodes run, or none: the first failure ends the others (SIGTERM, after the shutdown timeout
// SIGKILL, to each process group). SIGTERM, SIGINT, SIGHUP and SIGQUIT are forwarded; a second signal, at least one
// second later, kills. After any failure, and after a kill of the launcher, nothing that the workers started is left
// (supervisor.h).

#include <string>
#include <vector>

#include "distributed/launcher/launch_options.h"

namespace quench::distributed {

// Runs `command` in options.workers processes. Exit status: 0 if all exited with 0, else that of the first failing
// worker (128 + signal if killed); 128 + signal if a signal stopped the launcher. Throws Error if nothing could be
// started. `title`: heading of the failure report.
[[nodiscard]] int launch(const LaunchOptions& options, const std::vector<std::string>& command,
                         const std::string& title);

}  // namespace quench::distributed
