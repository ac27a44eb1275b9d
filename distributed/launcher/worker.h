#pragma once
// Worker process of a run.

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "distributed/store/socket.h"

namespace quench::distributed {

struct WorkerStart {
  std::vector<std::string> command;      // command[0] is looked up in PATH
  std::vector<std::string> environment;  // "NAME=value", complete
  int stdout_to = -1;
  int stderr_to = -1;
};

// Starts a worker in its own process group, with no stdin, default signal handlers, and SIGKILL on the launcher's
// death. Throws failed naming the command.
[[nodiscard]] pid_t start_worker(const WorkerStart& start);

// fork(2). Throws failed, naming the limit if one is reached.
[[nodiscard]] pid_t fork_process();

// Signals the worker's process group; only the process if it has left its group.
void signal_worker(pid_t worker, int signal) noexcept;

// "signal 11 (Segmentation fault)", "status 7".
[[nodiscard]] std::string describe_status(int wait_status);
// Shell exit code: the status, or 128 + signal.
[[nodiscard]] int exit_code(int wait_status);

}  // namespace quench::distributed
